"""The ext codes of docs/format.md."""

from __future__ import annotations

TUPLE, SET, FROZENSET, BIG_INT, DECIMAL, DATETIME, DATE, TIME, TIMEDELTA = range(1, 10)
UUID_, COMPLEX, BYTEARRAY, MAP, CLASS, SURROGATES = range(10, 16)
SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT = 32, 33, 34
SPLITS = frozenset((SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT))
