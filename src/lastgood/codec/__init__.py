"""Values to bytes and back: encoding, splitting, compression, packs. Pure; no I/O."""
