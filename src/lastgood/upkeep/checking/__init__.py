"""Checking a store: whether everything in it is what was stored, who needs what is not, and what still works."""
