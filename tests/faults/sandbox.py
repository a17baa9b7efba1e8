"""The folders of a scenario: a store and a workspace on a disk that fails, a ledger on one that does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple


class Sandbox(NamedTuple):
    """A folder with a store, workspaces, a ledger, and copies of all of it to go back to."""

    folder: Path
    disk: Path
    """All that can be damaged. Its place stays the same, and so do its workspaces, which a store knows by inode."""

    @property
    def store(self) -> Path:
        return self.disk / "store"

    @property
    def work(self) -> Path:
        return self.disk / "work"

    @property
    def beside(self) -> Path:
        """The files of a second process."""
        return self.disk / "beside"

    @property
    def away(self) -> Path:
        """Where the store lies while nobody can reach it."""
        return self.disk / "away"

    @property
    def spool(self) -> Path:
        """Where checkpoints wait for the store; not there where a scenario spools nothing."""
        return self.disk / "spool"

    @property
    def backups(self) -> Path:
        """Where backups of the store are made; not there where a scenario makes none."""
        return self.disk / "backups"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def counter(self) -> Path:
        return self.folder / "counter"

    @property
    def running(self) -> Path:
        """A file that is locked while a scenario runs that another process does something beside."""
        return self.folder / "running"

    @property
    def migration(self) -> Path:
        """A migration that whoever opens the store knows beside those of lastgood, if it is there."""
        return self.folder / "migration.sql"

    @property
    def host(self) -> Path:
        """The name of the host that everything after the scenario happens on, if it is there."""
        return self.folder / "host"

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    def keep(self, name: str = "beginning") -> None:
        """Remember everything as it is now."""
        kept = self.folder / "kept" / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        shutil.copytree(self.disk, kept / "disk", symlinks=True)
        shutil.copy2(self.ledger, kept / "ledger")

    def reset(self, name: str = "beginning") -> None:
        """Make everything as it was when it was kept."""
        kept = self.folder / "kept" / name
        self.clear()
        shutil.copytree(kept / "disk", self.disk, symlinks=True, dirs_exist_ok=True)
        shutil.copy2(kept / "ledger", self.ledger)
        self.counter.write_bytes(bytes(8))
        self.trace.unlink(missing_ok=True)

    def clear(self) -> None:
        """Nothing is on the disk but empty workspaces: a store knows them by their inodes, which a crash leaves."""
        for folder in self.disk.iterdir():
            if folder not in (self.work, self.beside):
                shutil.rmtree(folder)
                continue
            for inside in folder.iterdir():
                if inside.is_dir() and not inside.is_symlink():
                    shutil.rmtree(inside)
                else:
                    inside.unlink()

    def beginning(self) -> Path:
        """The disk as it was when it was kept."""
        return self.folder / "kept" / "beginning" / "disk"


def make_sandbox(folder: Path, disk: Path | None = None) -> Sandbox:
    sandbox = Sandbox(folder, disk or folder / "disk")
    sandbox.disk.mkdir(exist_ok=True)
    sandbox.work.mkdir()
    sandbox.beside.mkdir()
    sandbox.ledger.touch()
    sandbox.counter.write_bytes(bytes(8))
    return sandbox
