"""Bytes and values, pure: canonical encoding, splitting, compression, comparison. No I/O."""
