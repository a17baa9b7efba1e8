"""A new spool file: whole, durable and under its name, or not there at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import apsw

from lastgood.catalog.sqlite.connection import create_connection, translated_errors
from lastgood.errors import CheckpointError
from lastgood.local.location import make_folder
from lastgood.model.identity import new_id

SCHEMA = """
  CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
  CREATE TABLE tasks (task INTEGER PRIMARY KEY, owner TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (owner, id));
  CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL, branch TEXT NOT NULL, owner TEXT NOT NULL,
    id TEXT NOT NULL, parent TEXT, checksum BLOB NOT NULL, key TEXT, follows INTEGER NOT NULL, at INTEGER NOT NULL,
    size INTEGER NOT NULL, UNIQUE (owner, id));
  CREATE INDEX entries_line ON entries (task, branch, number);
  CREATE INDEX entries_parent ON entries (task, parent);
  CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
  CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY, task INTEGER NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL,
    encoding INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (task, digest));
  CREATE TABLE aside (number INTEGER PRIMARY KEY, reason TEXT NOT NULL, at INTEGER NOT NULL);
  CREATE TABLE steps (
    owner TEXT NOT NULL, id TEXT NOT NULL, task_id TEXT NOT NULL, step BLOB NOT NULL, size INTEGER, encoding INTEGER,
    snapshot BLOB, PRIMARY KEY (owner, id));
  CREATE TABLE room (data BLOB);
"""
"""`bodies` and `aside` stand apart from `entries`, so that one that is damaged can be told of and set aside."""


def create_spool(path: Path) -> None:
    fresh = path.with_name(f".{path.name}.{new_id()}.new")
    try:
        make_folder(path.parent)
        connection = create_connection(fresh)
        with translated_errors():
            connection.execute(SCHEMA)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            connection.close()
        _remove(fresh, "-wal", "-shm")
        _sync(fresh)
        for folder in (path.parent, *path.parent.parents):
            if folder.stat().st_dev != path.parent.stat().st_dev:
                break
            with suppress(PermissionError):  # it may be entered and not read, so it was not made for this
                _sync(folder)
        # SQLite makes the log with the first commit, and does not say if its name could not be made durable.
        os.close(os.open(path.with_name(path.name + "-wal"), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            os.link(fresh, path)  # not over one that another process has just made
        except FileExistsError:
            return
        except OSError:  # a file system without links
            fresh.rename(path)
        _sync(path.parent)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        from lastgood.engine.draft import disk_error

        raise disk_error(error) from error
    finally:
        _remove(fresh, "", "-wal", "-shm")


def _remove(file: Path, *ends: str) -> None:
    for end in ends:
        with suppress(OSError):
            file.with_name(file.name + end).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
