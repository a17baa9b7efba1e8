"""Programs that end in the middle of what they do, as if they were killed there."""

from __future__ import annotations

import subprocess
import sys

BEGIN = "import os, sys\nimport lastgood\nfrom lastgood.engine import restore_files as rewind\n"


def run_until_crash(script: str, *arguments: object) -> None:
    """Run a program that ends itself with `os._exit(9)`."""
    command = [sys.executable, "-c", BEGIN + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 9, done.stderr
