"""What tests of several folders share: sample stores, file trees, small disks, servers, models, programs to kill."""
