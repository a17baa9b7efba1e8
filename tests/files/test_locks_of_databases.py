"""POSIX drops all locks of a process on a file when it closes any descriptor of that file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from lastgood.files.folders import OpenFolder, hash_file
from lastgood.local.process import descriptors

WRITE = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"


def test_looking_at_a_database_leaves_this_process_its_locks(tmp_path: Path) -> None:
    """Hostile use, H1 to H5"""
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("BEGIN IMMEDIATE")
        folder = OpenFolder(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
        assert hash_file(b"app.db", file.stat(), folder) is not None
        descriptors.close_parked()
        folder.close()
        told = subprocess.run([sys.executable, "-c", WRITE, file], capture_output=True, text=True, check=False)
        assert "database is locked" in told.stderr
    descriptors.close_parked()
