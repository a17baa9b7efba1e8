"""The `lastgood` command: each command's module is imported when it is run."""

import gc

GC_THRESHOLD = gc.get_threshold()
"""What Python has by itself; `main` raises it, and `run` puts it back for the user's program."""
