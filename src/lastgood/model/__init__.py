"""Frozen values and pure functions: the vocabulary of lastgood. No I/O, no clocks but `identity`."""
