"""The operations. The only place that joins catalog and content."""
