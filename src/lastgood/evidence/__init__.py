"""Checking evidence: claims about files, commands and databases, and claims of users' own types."""
