"""Immutable named bytes: the contract, a local directory, and wrappers. What the bytes mean is defined elsewhere."""
