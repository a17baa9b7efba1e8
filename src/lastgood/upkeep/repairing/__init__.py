"""Repairing a store: damaged content is found elsewhere, or given up in the open; nothing is invented."""
