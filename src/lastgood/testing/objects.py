"""What every object store must do: hold what was put under a name, whole, for whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from lastgood.errors import IntegrityError, InvalidError, NotFoundError
from lastgood.objects.contract import Listed, ObjectStore
from lastgood.testing.case import refused

HOSTILE = (
    *("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", ".hidden", "a/.hidden", ".drafts/a"),
    *("A", "a b", "a\n", "\na", "a\0", "a\\b", "a:b", "a%2e", "ä", "~", "*", "a" * 256, "a/" * 500 + "a", "\ud800"),
)
NAMES = ("a", "packs/9f/9f86d081", "archives/2024-01-01_x.tar", "a-b", "a..b", "0", "_", "a" * 255, "a/" * 499 + "a")


class ObjectStoreConformance:
    """A suite to inherit, and say how a fresh, empty store is made."""

    store: ObjectStore

    def make_store(self) -> ObjectStore:
        raise NotImplementedError

    def setup_method(self) -> None:
        self.store = self.make_store()

    def teardown_method(self) -> None:
        self.store.close()

    # --- means -----------------------------------------------------------------------------------------------

    def put(self, name: str, *chunks: bytes) -> bool:
        return self.store.put(name, iter(chunks))

    def adopt(self, name: str, data: bytes) -> bool:
        path = self.store.draft()
        path.write_bytes(data)
        try:
            return self.store.adopt(name, path)
        finally:
            assert not path.exists()

    def names(self, prefix: str = "") -> list[str]:
        return [listed.name for listed in self.store.list(prefix)]

    # --- putting and getting ---------------------------------------------------------------------------------

    def test_what_was_put_comes_back(self) -> None:
        """P2, I1."""
        assert self.put("packs/ab/one", b"first ", b"", b"second")
        assert self.store.get("packs/ab/one") == b"first second"
        data = bytes(range(256)) * 5000
        for name, chunks in (("nothing", []), ("several", [data[:1], data[1:700_000], data[700_000:]])):
            assert self.put(name, *chunks)
            assert self.store.get(name) == b"".join(chunks)
        assert [self.store.size(name) for name in self.names()] == [0, 12, len(data)]

    def test_every_name_that_can_be_one_is_taken(self) -> None:
        for name in NAMES:
            store = self.make_store()
            assert store.put(name, [name.encode()])
            assert store.get(name) == name.encode()
            assert list(store.list()) == [Listed(name, len(name))]
            store.close()

    def test_a_name_is_given_once_and_what_is_there_stays(self) -> None:
        assert self.put("one", b"first")
        assert not self.put("one", b"second, longer")
        assert not self.adopt("one", b"third")
        assert self.store.get("one") == b"first"

    def test_a_range_is_exactly_that_range(self) -> None:
        self.put("digits", b"0123456789")
        for start, length, expected in ((3, 4, b"3456"), (7, None, b"789"), (0, 10, b"0123456789"), (4, 0, b"")):
            assert self.store.get("digits", start, length) == expected
        assert self.store.get("digits", 10) == self.store.get("digits", 10, 0) == b""
        for start, length in ((-1, 1), (0, -1), (-1, None)):
            with refused(InvalidError):
                self.store.get("digits", start, length)

    def test_a_range_beyond_the_end_is_damage_and_not_fewer_bytes(self) -> None:
        """I3."""
        self.put("digits", b"0123456789")
        for start, length in ((0, 11), (10, 1), (11, 0), (11, None), (3, 1 << 62), (1 << 62, 1)):
            with refused(IntegrityError):
                self.store.get("digits", start, length)

    def test_what_is_not_there_is_not_found(self) -> None:
        self.put("folder/one", b"1")
        for name in ("nothing", "folder", "folder/two", "folder/one/below"):
            with refused(NotFoundError):
                self.store.get(name)
            with refused(NotFoundError):
                self.store.size(name)

    def test_a_name_that_could_lead_elsewhere_is_refused(self) -> None:
        draft = self.store.draft()
        draft.write_bytes(b"kept")
        uses = (
            self.put,
            lambda name: self.store.adopt(name, draft),
            self.store.get,
            self.store.size,
            self.store.delete,
        )
        for name in HOSTILE:
            for use in uses:
                with refused(InvalidError):
                    use(name)
        assert draft.read_bytes() == b"kept"
        assert self.names() == []

    def test_a_failing_source_stores_nothing_and_its_error_is_passed_on(self) -> None:
        """I2."""

        class OwnError(OSError):
            pass

        def source() -> Iterator[bytes]:
            yield b"some"
            raise OwnError("mine")

        passed_on = ""
        try:
            self.store.put("torn", source())
        except OwnError as error:
            passed_on = str(error)
        assert passed_on == "mine"
        assert self.names() == []
        assert self.store.sweep(0) == 0
        assert self.put("torn", b"whole")

    # --- adopting --------------------------------------------------------------------------------------------

    def test_drafts_are_apart_and_nobody_sees_them_until_they_are_adopted(self) -> None:
        first, second = self.store.draft(), self.store.draft()
        assert first != second
        first.write_bytes(b"unfinished")
        assert self.names() == []
        assert self.adopt("packs/cd/two", b"written elsewhere")
        assert self.store.get("packs/cd/two") == b"written elsewhere"
        assert self.names() == ["packs/cd/two"]

    def test_an_abandoned_draft_is_swept_and_a_fresh_one_is_not(self) -> None:
        abandoned = self.store.draft()
        abandoned.write_bytes(b"12345")
        self.put("kept", b"kept")
        assert self.store.sweep() == 0
        assert abandoned.exists()
        assert self.store.sweep(0) == 5
        assert not abandoned.exists()
        assert self.store.get("kept") == b"kept"

    # --- deleting and listing --------------------------------------------------------------------------------

    def test_what_is_deleted_is_gone_and_may_come_again(self) -> None:
        self.put("folder/one", b"1")
        self.put("folder/two", b"2")
        self.store.delete("folder/one")
        self.store.delete("folder/one")
        self.store.delete("folder")
        self.store.delete("nowhere/at/all")
        self.store.delete("folder/two/below")
        assert self.names() == ["folder/two"]
        with refused(NotFoundError):
            self.store.get("folder/one")
        assert self.put("folder/one", b"again")
        assert self.store.get("folder/one") == b"again"

    def test_lists_by_the_beginning_of_names_in_their_order(self) -> None:
        assert self.names() == self.names("packs/") == []
        assert self.store.sweep(0) == 0
        names = ["a-b", "a.b", "a/b", "a/b-c", "a0", "b/c/d", "b/c0", "b/d"]
        for name in reversed(names):
            self.put(name, name.encode())
        assert list(self.store.list()) == [Listed(name, len(name)) for name in names]
        assert self.names("a") == ["a-b", "a.b", "a/b", "a/b-c", "a0"]
        assert self.names("a/") == ["a/b", "a/b-c"]
        assert self.names("b/c") == ["b/c/d", "b/c0"]
        assert self.names("b/c/d") == ["b/c/d"]
        assert self.names("b/c/d/") == []
        assert self.names("nothing/") == []

    def test_a_prefix_that_could_lead_elsewhere_is_refused(self) -> None:
        for prefix in ("/", "..", "../", "a/../", "a//", ".drafts/", "A", "a\0"):
            with refused(InvalidError):
                list(self.store.list(prefix))

    # --- at the same time ------------------------------------------------------------------------------------

    def test_of_many_who_put_the_same_name_one_does(self) -> None:
        """I2: whoever loses sees the winner's object, whole."""
        contents = [bytes([number]) * 100_000 for number in range(8)]
        outcomes: list[tuple[bool, bytes]] = []
        start = threading.Barrier(len(contents))

        def contend(data: bytes) -> None:
            start.wait()
            fresh = self.store.put("contended/name", _in_pieces(data))
            outcomes.append((fresh, self.store.get("contended/name")))

        _in_threads(contend, contents)
        assert sorted(fresh for fresh, _ in outcomes) == [False] * 7 + [True]
        assert {seen for _, seen in outcomes} == {self.store.get("contended/name")}
        assert self.store.get("contended/name") in contents

    def test_many_objects_put_at_once_are_all_there(self) -> None:
        contents = [number.to_bytes(2, "big") * 50 for number in range(64)]

        def put_all(data: bytes) -> None:
            name = sha256(data).hexdigest()
            assert self.store.put(f"packs/{name[:2]}/{name}", [data])

        _in_threads(put_all, contents)
        assert sorted(self.store.get(name) for name in self.names("packs/")) == sorted(contents)


def _in_pieces(data: bytes) -> Iterable[bytes]:
    return (data[at : at + 4096] for at in range(0, len(data), 4096))


def _in_threads(work: Callable[[bytes], None], items: list[bytes]) -> None:
    """Do the work for each item in a thread of its own."""
    with ThreadPoolExecutor(len(items)) as pool:
        list(pool.map(work, items))
