"""Garbage collection, limits, disk usage, check and repair."""
