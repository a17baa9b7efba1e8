"""Ignore rules, read exactly as git reads them."""
