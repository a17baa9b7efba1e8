"""Whether the files of a checkpoint are in the store: every directory is read, content is looked up, or read, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from lastgood.engine.blobs import FileBlobs
from lastgood.engine.browse import show_path
from lastgood.errors import IntegrityError, LostCommitsError
from lastgood.model.tree import File, Folder, Tree, decode_chunks, open_tree

if TYPE_CHECKING:
    from lastgood.engine.engine import Engine
    from lastgood.model.checkpoint import FileRoot, Record


class FilesCheck:
    """A check of the files of several checkpoints. What one of them has whole is not looked up again for the next."""

    unlisted = "the list of what is in this folder is missing or damaged"

    def __init__(self, engine: Engine) -> None:
        self._blobs = FileBlobs(engine.catalog, engine.objects, engine.blob_id)  # past all that is remembered
        self._known: set[bytes] = set()

    def list_problems(self, record: Record, *, read: bool) -> list[str]:
        """List what is missing or damaged, each with its path.

        Directories are read, and what lies in the database. Of content in packs it is checked that the index has it
        and that the pack is there and long enough; with `read` all of it is read and compared with its hash.
        """
        problems: list[str] = []
        seen: set[bytes] = set()
        files: dict[bytes, tuple[str, File]] = {}
        for root in record.files or ():
            problems += self._list_files(root, seen, files)
        suspects = list(files) if read else self._list_suspects(files)
        stream = self._blobs.stream_ahead([files[key][1] for key in suspects])
        for path, file in (files[key] for key in suspects):
            if (problem := _examine(stream, file)) is not None:
                problems.append(f"{path}: {problem}".encode("utf-8", "replace").decode())
        if not problems and not read:
            self._known |= seen | files.keys()
        return problems

    def find_damaged(self, files: Mapping[bytes, File]) -> dict[bytes, str]:
        """Read the content of files, by path; return what is wrong with those that cannot be had whole."""
        stream = self._blobs.stream_ahead(list(files.values()))
        found = ((path, _examine(stream, file)) for path, file in files.items())
        return {path: problem for path, problem in found if problem is not None}

    def _list_files(self, root: FileRoot, seen: set[bytes], files: dict[bytes, tuple[str, File]]) -> Iterator[str]:
        """Add all files below a root, by the blob that leads to their content; yield folders that cannot be read."""
        level = [(b"", root.tree)]
        while level:
            trees = self._read_trees([tree for _, tree in level])
            below = []
            for path, tree in level:
                if tree not in trees:
                    shown = show_path(root.name, (path or b".") + b"/")
                    yield f"{shown}: {self.unlisted}".encode("utf-8", "replace").decode()
                    continue
                for entry in trees[tree]:
                    place = path + b"/" + entry.name if path else entry.name
                    if isinstance(entry, Folder) and entry.tree not in seen and entry.tree not in self._known:
                        seen.add(entry.tree)
                        below.append((place, entry.tree))
                    elif isinstance(entry, File) and (key := entry.chunks or entry.blob) not in self._known:
                        files.setdefault(key, (show_path(root.name, place), entry))
            level = below

    def _read_trees(self, keys: Sequence[bytes]) -> dict[bytes, Tree]:
        """Read directories, those that can be."""
        try:
            read = self._blobs.read_all
            return {key: open_tree(data, read) for key, data in read(keys).items()}
        except LostCommitsError:
            raise
        except IntegrityError:
            if len(keys) == 1:
                return {}
        return {key: tree for one in keys for key, tree in self._read_trees([one]).items()}

    def _list_suspects(self, files: dict[bytes, tuple[str, File]]) -> list[bytes]:
        """List the files whose content is not there, by all that can be said without reading packs."""
        needs: dict[bytes, list[bytes]] = {}
        for key, (_, file) in files.items():
            needs[key] = [key]
            if file.chunks is not None:
                try:
                    needs[key] += [chunk.digest for chunk in decode_chunks(self._blobs.read(key), file)]
                except IntegrityError:
                    needs[key] = [b""]  # which is nowhere
        absent = self._blobs.list_absent([key for keys in needs.values() for key in keys])
        return [key for key, keys in needs.items() if not absent.isdisjoint(keys)]


def _examine(stream: Callable[[File], Iterator[bytes]], file: File) -> str | None:
    """Read a file's content; return what is wrong with it."""
    whole = sha256()
    try:
        for piece in stream(file):
            whole.update(piece)
    except LostCommitsError:
        raise
    except IntegrityError as error:
        return str(error)
    return None if whole.digest() == file.digest else "its content is not what its hash says"
