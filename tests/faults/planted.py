"""Bugs that are known, because they are ours: each is put into a copy of lastgood, and a campaign must notice it.

A campaign that no bug trips proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.faults.compiled import copy_source


class Change(NamedTuple):
    """In `file` (below the package) `old` stands exactly once; it becomes `new`."""

    file: str
    old: str
    new: str


class Bug(NamedTuple):
    """`campaign` and `part`: who must notice it. `points`: of how many trials (None: all there are)."""

    name: str
    campaign: str
    part: str
    changes: tuple[Change, ...]
    points: int | None = None


def plant(bug: Bug, folder: Path) -> Path:
    """A copy of lastgood with the bug in it; what to put in front of the path to import it."""
    copy_source(folder)
    for file, old, new in bug.changes:
        place = folder / "lastgood" / file
        text = place.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{bug.name}: what it changes is {text.count(old)} times in {file}: {old!r}")
        place.write_text(text.replace(old, new))
    return folder


_WRITE_AT_ONCE = Change("engine/gather.py", 'os.fdopen(descriptor, "wb")', 'os.fdopen(descriptor, "wb", buffering=0)')
_TWICE = Change(
    "engine/commit.py",
    "    committed = catalog.commit(commit, Actor(user, correlation_id))\n",
    """    committed = catalog.commit(commit, Actor(user, correlation_id))
    if commit.step is None and commit.journal is None and isinstance(commit.branch, str) and draft.type == "manual":
        replace = msgspec.structs.replace
        record = replace(record, id=new_id(), parent_id=record.id, parent_checksum=commit.checksum, key=None)
        data = encode_record(record)
        commit = replace(commit, record=record, data=data, checksum=digest(data), fulfilled=(), notes=(), begins=None)
        commit = replace(commit, packs=(), file_blobs=(), relies_on=())
        committed = catalog.commit(commit, Actor(user, correlation_id))
""",
)

BUGS = (
    Bug(
        "what is spooled is not synced",
        "reorder",
        "spool",
        (Change("spool/file.py", "set_synced(connection, durable)", "set_synced(connection, False)"),),
        points=60,
    ),
    Bug(
        "a migration is not one transaction",
        "kill",
        "migrate",
        (Change("catalog/sqlite/migration.py", "        with connection:\n", "        if True:\n"),),
    ),
    Bug(
        "a new catalog gets its name before it is filled",
        "kill",
        "create",
        (
            Change(
                "catalog/sqlite/migration.py",
                "        connection = create_connection(fresh)\n",
                "        connection = create_connection(path)\n",
            ),
            Change(
                "catalog/sqlite/migration.py",
                "            connection.close()\n",
                "            connection.close()\n            return\n",
            ),
        ),
    ),
    Bug(
        "an interrupted restore is not taken back",
        "kill",
        "restore whole",
        (
            Change(
                "engine/restore_files.py",
                "            if journal.made is None:\n                self._take_back(journal)\n",
                "            if journal.made is None:\n                pass\n",
            ),
        ),
    ),
    Bug(
        "what is restored over is not kept",
        "kill",
        "switch",
        (Change("engine/restore_files.py", "            self._keep(present, state, message)\n", ""),),
    ),
    Bug(
        "a folder is known by the name of its host",
        "kill",
        "restore, then another host",
        (
            Change(
                "files/roots.py",
                'FolderId(path, f"{found.st_ino:x}"',
                'FolderId(path, f"{os.uname().nodename} {found.st_ino:x}"',
            ),
        ),
        40,
    ),
    Bug(
        "a restored database gets the log of another moment",
        "kill",
        "restore databases",
        (Change("files/apply.py", "        if not step.beside and not comes:\n", "        if True:\n"),),
        5,
    ),
    Bug(
        "a disk that fails is taken for a database that cannot be read",
        "failing",
        "restore databases",
        (
            Change(
                "files/read.py",
                "    except UnavailableError:  # the disk of the copy: no fault of the database\n        raise\n",
                "",
            ),
        ),
        60,
    ),
    Bug(
        "a backup gets its name before it is filled",
        "kill",
        "back up",
        (
            Change(
                "upkeep/backup.py",
                "        made = _copy(engine, user, locate(partial), progress or (lambda *_: None))\n"
                "        partial.rename(destination)\n",
                "        partial.rename(destination)\n"
                "        made = _copy(engine, user, locate(destination), progress or (lambda *_: None))\n",
            ),
        ),
        40,
    ),
    Bug(
        "a backup clears away another one that is under way",
        "kill",
        "back up",
        (
            Change(
                "upkeep/backup.py",
                "        make_folder(partial)\n",
                "        for left in destination.parent.glob(f'.{destination.name}.*.partial'):\n"
                "            shutil.rmtree(left)\n"
                "        make_folder(partial)\n",
            ),
        ),
        5,
    ),
    Bug(
        "the folder of a backup is not synced",
        "reorder",
        "back up",
        (Change("upkeep/backup.py", "        _sync(destination.parent)\n", ""),),
    ),
    Bug(
        "packs are removed before the catalog has forgotten them",
        "kill",
        "collect",
        (
            Change(
                "upkeep/collect.py",
                "for name in self.engine.catalog.remove_packs(some):\n"
                "                self.engine.objects.delete(name)\n",
                "for name in some:\n                self.engine.objects.delete(name)\n"
                "            for name in self.engine.catalog.remove_packs(some):\n",
            ),
        ),
    ),
    Bug(
        "a pack that is about to be committed is taken for garbage",
        "kill",
        "save beside a collector",
        (Change("upkeep/collect.py", "listed.keys() - known - announced:", "listed.keys() - known:"),),
    ),
    Bug(
        "what people asked for is marked as fulfilled after it was done",
        "kill",
        "steer a session",
        (
            Change(
                "catalog/relational/catalog.py",
                "    commit = _write(commit.commit)\n",
                "    def commit(self, made, actor):\n"
                "        import msgspec\n\n"
                "        apart, sql = msgspec.structs.replace(made, fulfilled=()), sessions.SQL.end_request\n"
                "        done = self._write(commit.commit, apart, actor)\n"
                "        for one in made.fulfilled:\n"
                "            self._write(lambda c: c.run(sql, **sessions.ending(c, made.owner, one)))\n"
                "        return done\n",
            ),
        ),
    ),
    Bug(
        "the next stage is begun after the commit of the last, not with it",
        "kill",
        "run a pipeline",
        (
            Change(
                "catalog/relational/catalog.py",
                "    commit = _write(commit.commit)\n",
                "    def commit(self, made, actor):\n"
                "        import msgspec\n\n"
                "        apart = msgspec.structs.replace(made, begins=None)\n"
                "        done = self._write(commit.commit, apart, actor)\n"
                "        if made.begins is None:\n"
                "            return done\n"
                "        self.begin_step(made.begins, None)\n"
                "        return msgspec.structs.replace(done, begun=True)\n",
            ),
        ),
    ),
    Bug(
        "threads that share a transaction are told before it is committed",
        "kill",
        "save in threads",
        (
            Change(
                "catalog/sqlite/database.py",
                "durable)\n                committing = True\n",
                "durable)\n"
                "                batch.settled = True\n"
                "                for write in batch.writes[1:]:\n"
                "                    write.wake()\n"
                "                committing = True\n",
            ),
        ),
    ),
    Bug(
        "what was edited since is lost when an interrupted restore is taken back",
        "kill",
        "restore whole",
        (
            Change(
                "engine/restore_files.py",
                "            self._keep(present._replace(binding=None), NOT_GIVEN, "
                '"as an interrupted restore left it")\n',
                "",
            ),
        ),
        120,
    ),
    Bug(
        "whoever was taken over can still save",
        "kill",
        "be taken over",
        (
            Change(
                "catalog/relational/commit.py",
                "    if commit.lease is not None:\n        check_holder(connection, holder, commit.lease)\n",
                "",
            ),
        ),
        5,
    ),
    Bug("every save is stored twice", "kill", "save inline", (_TWICE,), 20),
    Bug(
        "commits are not synced",
        "power",
        "save inline",
        (Change("catalog/sqlite/connection.py", "{FULL if synced else NORMAL}", "{NORMAL}"),),
    ),
    Bug(
        "a journal ends before its files are durable",
        "power",
        "restore whole",
        (
            Change(
                "engine/workspace.py",
                "if all(sync(root.path, plan, go_on) for root, plan in plans):",
                "if plans:",
            ),
        ),
    ),
    Bug(
        "restored files that power loss took are not put again",
        "power",
        "restore whole, synced later",
        (Change("engine/restore_files.py", "        self._finish(journal, plan)\n", ""),),
    ),
    Bug(
        "a save is acknowledged before its commit is durable",
        "reorder",
        "save inline",
        (
            Change(
                "catalog/relational/catalog.py",
                "_write(commit.commit)",
                "_write_soon(commit.commit)",
            ),
        ),
    ),
    Bug(
        "the folder of a pack is not synced",
        "reorder",
        "save packed",
        (
            Change(
                "objects/local.py", "        self._sync(place.parent)\n        return fresh\n", "        return fresh\n"
            ),
        ),
    ),
    Bug(
        "the folders above a new store are not synced",
        "reorder",
        "create",
        (Change("catalog/sqlite/migration.py", "        _sync_way_to(path.parent)\n", ""),),
    ),
    Bug(
        "packs are not synced",
        "ordering",
        "save packed",
        (
            Change(
                "objects/local.py",
                "    os.fchmod(descriptor, 0o600)\n    _flush(descriptor)\n",
                "    os.fchmod(descriptor, 0o600)\n",
            ),
        ),
    ),
    Bug(
        "a collection does not wait for its transaction",
        "ordering",
        "collect",
        (
            Change(
                "catalog/relational/catalog.py",
                "_write(collection.remove_packs)",
                "_write_soon(collection.remove_packs)",
            ),
        ),
    ),
    Bug(
        "the witness speaks before the commit",
        "ordering",
        "save inline",
        (
            Change(
                "catalog/sqlite/database.py",
                '                committing = True\n                connection.raw.execute("COMMIT")',
                "                committing = True\n                self._queue.testify(number or 0)\n"
                '                connection.raw.execute("COMMIT")',
            ),
        ),
    ),
    Bug(
        "short writes are not completed",
        "failing",
        "restore whole",
        (
            Change(
                "local/process.py",
                "    while rest:\n        rest = rest[os.write(descriptor, rest) :]\n",
                "    os.write(descriptor, rest)\n",
            ),
        ),
    ),
    Bug(
        "an error of the disk is swallowed",
        "failing",
        "save packed",
        (
            Change(
                "engine/gather.py",
                "self._writer.add(key, data)\n        except OSError as error:\n            self.discard()\n"
                "            raise disk_error(error) from error",
                "self._writer.add(key, data)\n        except OSError:\n            pass",
            ),
            _WRITE_AT_ONCE,
        ),
    ),
    Bug(
        "an error of the disk comes as it is",
        "failing",
        "save packed",
        (
            Change(
                "engine/gather.py",
                "        except OSError as error:\n            raise disk_error(error) from error\n        self._file",
                "        finally:\n            pass\n        self._file",
            ),
        ),
    ),
    Bug(
        "threads that share a transaction do not hear that it failed",
        "failing",
        "save in threads",
        (
            Change(
                "catalog/sqlite/group.py",
                "self.batch.error is not None:\n",
                "self.batch.error is not None and self.batch.writes[0] is self:\n",
            ),
        ),
    ),
    Bug("every save is stored twice, on a disk that fails", "failing", "save inline", (_TWICE,), 20),
    Bug(
        "after a failed sync all goes on as if nothing was",
        "forgetful",
        "save packed",
        (Change("catalog/sqlite/database.py", "        if isinstance(error, apsw.IOError):\n", "        if False:\n"),),
    ),
    Bug(
        "other processes do not hear that a sync has failed",
        "forgetful",
        "save inline",
        (
            Change(
                "catalog/sqlite/queue.py",
                "        self._write(self.witness() or 0, doubted=doubted)",
                "        self._write(self.witness() or 0, doubted=False)",
            ),
        ),
    ),
    Bug(
        "an interrupted restore is forgotten before it is taken back",
        "recovery",
        "restore whole",
        (
            Change(
                "engine/restore_files.py",
                "if failed := _failures(self._apply(plan)):\n",
                "self._engine.catalog.end_journal(journal.id)\n        if failed := _failures(self._apply(plan)):\n",
            ),
        ),
    ),
    Bug(
        "content is not checked when it is read",
        "damage",
        "packs",
        (
            Change(
                "engine/blobs.py",
                "    data = decompress(encoding, stored, size)\n    if blob_id.of(data) != key:\n",
                "    data = decompress(encoding, stored, size)\n    if False:\n",
            ),
        ),
        200,
    ),
    Bug(
        "commits that are gone are not missed",
        "damage",
        "log",
        (Change("catalog/sqlite/database.py", "if counted(last) < (witness or 0):", "if False:"),),
        200,
    ),
    Bug(
        "pages of the database have no checksums",
        "damage",
        "database",
        (Change("catalog/sqlite/connection.py", '_VFS = "cksmvfs"', '_VFS = "unix"'),),
        200,
    ),
    Bug(
        "a save that is repeated is stored twice",
        "crowd",
        "many tasks",
        (
            Change(
                "catalog/relational/commit.py",
                "earlier = _find_earlier(commit, found) if commit.may_repeat else None",
                "earlier = None",
            ),
        ),
        15,
    ),
    Bug(
        "a save does not look whether its parent is the head",
        "crowd",
        "one task",
        (
            Change(
                "catalog/relational/commit.py",
                "    if head_id != commit.record.parent_id and not commit.append:",
                "    if head_id is None:",
            ),
        ),
        15,
    ),
    Bug(
        "packs are not announced",
        "crowd",
        "with files",
        (Change("engine/blobs.py", "        self._catalog.announce([name], this_process())\n", ""),),
        15,
    ),
    Bug(
        "a full disk is called something else",
        "full",
        "another quarter",
        (Change("engine/gather.py", "in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)", "in (errno.EDQUOT,)"),),
    ),
    Bug(
        "a step stays open after its checkpoint",
        "machine",
        "file",
        (
            Change(
                "catalog/relational/commit.py",
                "    if commit.step is not None:\n"
                "        connection.run(SESSIONS.end_step, owner=commit.owner, id=commit.step)\n",
                "",
            ),
        ),
        40,
    ),
    Bug(
        "files that drifted are not kept before others come",
        "machine",
        "folder",
        (Change("engine/restore_files.py", "if is_new or has_drifted(present, handle.head):", "if is_new:"),),
        40,
    ),
    Bug(
        "every fork is paused",
        "machine",
        "file",
        (Change("engine/branch.py", 'check_flag("paused", paused) else None', 'check_flag("paused", True) else None'),),
        40,
    ),
    Bug(
        "an older format is not migrated as far as today's",
        "golden",
        "2.0",
        (
            Change(
                "catalog/sqlite/migration.py", "if migration.number > applied]", "if migration.number > applied + 1]"
            ),
        ),
    ),
)
