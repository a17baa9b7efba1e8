"""Every transaction of a catalog, written once over a small connection; a database adds its dialect and plumbing."""
