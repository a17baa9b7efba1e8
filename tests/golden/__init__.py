"""Golden stores: one of each on-disk format that ever was, written by the code of its time and never changed (G12).

`shelf` unpacks them, `make` writes one of today's format.
"""
