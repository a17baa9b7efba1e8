"""Checking evidence: claims about files, commands, databases and the world outside, and claims of users' own types."""
