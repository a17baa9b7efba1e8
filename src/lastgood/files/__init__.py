"""The files of one folder on disk: which are captured, how they are read, watched and put back."""
