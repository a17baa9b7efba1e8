"""Suites that every backend must pass; install lastgood and give them a factory."""
