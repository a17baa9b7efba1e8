"""What differs between two trees, texts or states. Pure; no I/O."""
