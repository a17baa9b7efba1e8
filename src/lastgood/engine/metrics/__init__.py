"""What a store counts of itself, and how that is told."""
