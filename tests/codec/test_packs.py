"""Packs: what goes in comes out, damage is noticed or harmless, and what is whole is saved (I1, I3, G6)."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from zlib import crc32

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.codec import pack as packs
from lastgood.codec.pack import Lost, PackEntry, PackIndex, PackWriter, pack_name, read_index, rebuild_index, unpack
from lastgood.errors import CheckpointError, FormatError, IntegrityError, InvalidError
from lastgood.model.identity import SHA256, digest

HEADER_SIZE, HEAD, FOOTER = 28, 49, 48
HEADER = (_top := b"LGPK\1\0\0\0" + bytes(16)) + struct.pack("<I", crc32(_top))
SMALL = (b"", b"short", b"text " * 300, random.Random(1).randbytes(800), b"last")

contents = st.lists(
    st.binary(max_size=300)
    | st.builds(lambda piece, times: piece * times, st.binary(max_size=20), st.integers(0, 3000)),
    max_size=30,
)


def pack(blobs: Sequence[bytes]) -> tuple[bytes, PackIndex]:
    written: list[bytes] = []
    writer = PackWriter(written.append)
    for blob in blobs:
        writer.add(digest(blob), blob)
    index = writer.finish()
    return b"".join(written), index


@cache
def small_pack() -> tuple[bytes, PackIndex]:
    return pack(SMALL)


class Ranges:
    """Reads ranges of bytes, exactly, and counts how often."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads, self.largest = data, 0, 0

    def __call__(self, start: int, length: int) -> bytes:
        assert 0 <= start <= start + length <= len(self.data), "a read outside of the pack"
        self.reads += 1
        self.largest = max(self.largest, length)
        return self.data[start : start + length]


def opened(data: bytes) -> PackIndex:
    return read_index(Ranges(data), len(data))


def rebuilt(data: bytes) -> PackIndex:
    return rebuild_index(Ranges(data), len(data), SHA256)


def stored(data: bytes, entry: PackEntry) -> bytes:
    return data[entry.position : entry.position + entry.length]


def blobs_of(data: bytes, index: PackIndex) -> list[bytes]:
    return [unpack(entry, stored(data, entry), SHA256) for entry in index.entries]


def unique(blobs: Sequence[bytes]) -> list[bytes]:
    return list(dict.fromkeys(blobs))


# --- round trips ---------------------------------------------------------------------------------------------------


@given(contents)
@settings(max_examples=200)
def test_what_was_packed_comes_back_and_nothing_twice(blobs: list[bytes]) -> None:
    """P2: stored content returns identical, no duplicate blob; and no two packs are the same object (B6)."""
    data, index = pack(blobs)
    assert (index.size, index.digest, index.lost) == (len(data), digest(data), ())
    found = opened(data)
    assert found.entries == index.entries
    assert blobs_of(data, found) == unique(blobs)
    again = pack(blobs)[0]
    assert again[HEADER_SIZE:] == data[HEADER_SIZE:]
    assert again != data


@given(contents)
@settings(max_examples=100)
def test_a_pack_without_its_index_tells_the_same(blobs: list[bytes]) -> None:
    """The entries alone say everything that the index did."""
    data, index = pack(blobs)
    end = index.entries[-1].position + index.entries[-1].length if index.entries else HEADER_SIZE
    assert rebuilt(data) == index._replace(digest=None)
    assert rebuilt(data[:end]) == PackIndex(index.entries, end)
    torn = rebuilt(data[:-1])
    assert torn.entries == index.entries
    assert torn.lost == (Lost(end, len(data) - 1 - end, "index"),)


def test_the_index_takes_two_reads_however_many_blobs_there_are() -> None:
    data, index = pack([b"%d" % number for number in range(5000)])
    ranges = Ranges(data)
    assert read_index(ranges, len(data)).entries == index.entries
    assert ranges.reads == 2


def test_a_pack_is_named_by_its_bytes() -> None:
    data, index = small_pack()
    assert index.digest is not None
    name = sha256(data).hexdigest()
    assert pack_name(index.digest) == f"packs/{name[:2]}/{name}"


@pytest.mark.parametrize("count", [0, 1, 20, 3000])
def test_how_large_a_pack_can_be_is_known_before_it_is_written(count: int) -> None:
    """Else one would be rewritten again and again to be rid of what it says of its own blobs."""
    data, index = pack([random.Random(number).randbytes(40) for number in range(count)])
    bound = packs.FRAME_SIZE + sum(packs.ENTRY_SIZE + entry.length for entry in index.entries)
    assert len(data) <= bound <= len(data) + 32 + count * 11


def test_the_layout_is_the_one_that_is_written_down() -> None:
    """docs/reference/format.md, byte by byte."""
    blob = b"hello"
    head = b"LGPE" + digest(blob) + struct.pack("<IIB", 5, 5, 0)
    entry = head + struct.pack("<I", crc32(head)) + blob
    plain = msgspec.msgpack.encode([digest(blob), [5], [5], b"\0"])
    index, sizes = b"LGPI" + plain, struct.pack("<IIII", 1, 0, len(plain), len(plain))
    made = pack([blob])[0]
    header = b"LGPK" + struct.pack("<I", 1) + made[8:24]
    assert made == header + struct.pack("<I", crc32(header)) + entry + index + sizes + digest(index + sizes)


def test_what_is_written_is_handed_on_as_it_comes() -> None:
    """Memory holds what is being written, not the pack."""
    sizes: list[int] = []
    writer = PackWriter(lambda data: sizes.append(len(data)))
    dice = random.Random(2)
    for _ in range(200):
        blob = dice.randbytes(10_000)
        writer.add(digest(blob), blob)
    assert sum(sizes) > 1_700_000
    assert max(sizes) < 300_000
    assert writer.finish().size == sum(sizes) == writer.size


def test_a_blob_that_cannot_be_packed_is_refused_and_the_rest_is_not_harmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MAX_BLOB", 1000)
    written: list[bytes] = []
    writer = PackWriter(written.append)
    writer.add(digest(b"x" * 1000), b"x" * 1000)
    with pytest.raises(InvalidError):
        writer.add(digest(b"x" * 1001), b"x" * 1001)
    with pytest.raises(InvalidError):
        writer.add(b"short id", b"x")
    writer.finish()
    data = b"".join(written)
    assert blobs_of(data, opened(data)) == [b"x" * 1000]


# --- damage --------------------------------------------------------------------------------------------------------


def check_damaged(data: bytes) -> tuple[set[bytes], set[bytes]]:
    """Whatever is returned is true. What could be read by the index, and what could be saved without it."""
    readable: set[bytes] = set()
    try:
        index = opened(data)
    except IntegrityError:
        pass
    else:
        assert index.entries == small_pack()[1].entries, "a damaged index was believed"
        for entry in index.entries:
            try:
                readable.add(unpack(entry, stored(data, entry), SHA256))
            except IntegrityError:
                continue
    saved = rebuilt(data)
    back = blobs_of(data, saved)
    assert set(back) <= set(SMALL)
    assert len(back) == len(set(back))
    for lost in saved.lost:
        assert 0 <= lost.position <= lost.position + lost.length <= len(data)
    return readable, set(back)


def test_every_truncation_is_noticed_and_what_is_whole_is_saved() -> None:
    """G6, I3: a torn tail costs the blob that it tears, and says so."""
    data, index = small_pack()
    for length in range(len(data)):
        torn = data[:length]
        with pytest.raises(IntegrityError):
            opened(torn)
        whole = [entry for entry in index.entries if entry.position + entry.length <= length]
        saved = rebuilt(torn)
        assert list(saved.entries) == whole
        end = whole[-1].position + whole[-1].length if whole else HEADER_SIZE
        assert sum(lost.length for lost in saved.lost) == (length - end if length >= HEADER_SIZE else length)
        named = [lost.blob_id for lost in saved.lost if lost.what == "blob"]
        begun = [entry.blob_id for entry in index.entries if entry.position <= length < entry.position + entry.length]
        assert named == begun


def test_every_flipped_bit_is_noticed_or_harmless_and_costs_one_blob_at_most() -> None:
    """G6, I3: 10,000 and more of them, one by one."""
    data, index = small_pack()
    raw = [range(entry.position, entry.position + entry.length) for entry in index.entries if entry.encoding == 0]
    flips = noticed = 0
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            readable, saved = check_damaged(bytes(damaged))
            assert len(saved) >= len(SMALL) - 1
            assert readable <= saved
            flips += 1
            noticed += readable != set(SMALL)
            # A frame has bits that mean nothing: flipped, they give the same blob.
            if any(at in content for content in raw):
                assert len(readable) == len(SMALL) - 1, f"bit {bit} of byte {at} was not noticed"
            if at >= len(data) - FOOTER:
                assert readable == set(), f"bit {bit} of byte {at} was not noticed"
    assert flips > 10_000
    assert noticed > flips // 2


def test_missing_bytes_do_not_hide_the_entry_that_moved_up() -> None:
    """As many as the last entry has: where it should begin, the index does."""
    data, index = pack([b"one", b"x" * 200, b"last"])
    at = index.entries[1].position
    damaged = data[:at] + data[at + HEAD + 4 : -1]
    assert blobs_of(damaged, rebuilt(damaged)) == [b"one", b"last"]


@given(st.data())
@settings(max_examples=300)
def test_stretches_of_rubbish_never_become_data(data: st.DataObject) -> None:
    """G6: zeroed pages, overwritten, removed and repeated stretches."""
    whole, _ = small_pack()
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start, len(whole)))
    instead = data.draw(st.sampled_from([b"", b"\0" * (end - start), whole[start:end] * 2]) | st.binary(max_size=60))
    _, saved = check_damaged(whole[:start] + instead + whole[end:])
    entries = small_pack()[1].entries
    untouched = {
        blob
        for blob, entry in zip(SMALL, entries, strict=True)
        if entry.position + entry.length <= start or entry.position - HEAD >= end
    }
    assert untouched <= saved


def test_swapped_contents_are_noticed() -> None:
    one, two = b"a" * 100, b"b" * 100
    data, index = pack([one, two])
    first, second = index.entries
    for entry, other in ((first, second), (second, first)):
        with pytest.raises(IntegrityError) as told:
            unpack(entry, stored(data, other), SHA256)
        assert told.value.details["blob"] == f"sha256:{entry.blob_id.hex()}"


def test_one_damaged_content_leaves_its_neighbours_and_is_named() -> None:
    data, index = pack([b"one", b"two", b"three"])
    damaged = data.replace(b"two", b"TWO")
    for torn in (damaged, damaged[:-1]):
        saved = rebuilt(torn)
        assert blobs_of(torn, saved) == [b"one", b"three"]
        assert saved.lost[0] == Lost(index.entries[1].position - HEAD, HEAD + 3, "blob", digest(b"two"))


def test_the_next_entry_is_found_behind_a_damaged_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it lies in the stretch that is searched at once."""
    for window in (1, 2, 3, 7, 50, 1 << 20):
        monkeypatch.setattr(packs, "_WINDOW", window)
        data, index = pack([b"one", b"two" * 30, b"three"])
        at = index.entries[1].position - HEAD
        damaged = data[:at] + b"X" + data[at + 1 : -1]
        saved = rebuilt(damaged)
        assert blobs_of(damaged, saved) == [b"one", b"three"]
        assert saved.lost[0] == Lost(at, HEAD + 90, "bytes")


def test_content_that_looks_like_a_pack_does_not_hide_what_follows() -> None:
    """Someone may keep packs in packs, or marks in texts, and mean harm by it."""
    inner, _ = pack([b"inner one", b"inner two"])
    head = b"LGPE" + digest(b"never there") + struct.pack("<IIB", 350, 350, 0)
    trap = b"LGPI" + head + struct.pack("<I", crc32(head)) + b"LGPE" * 20
    data, index = pack([inner, trap, b"real"])
    for victim in index.entries[:2]:
        for at in (victim.position - HEAD, victim.position - 1, victim.position, victim.position + victim.length - 1):
            damaged = bytearray(data[:-1])
            damaged[at] ^= 1
            saved = rebuilt(bytes(damaged))
            back = blobs_of(bytes(damaged), saved)
            assert set(back) >= {inner, trap, b"real"} - {
                blob for blob in (inner, trap) if digest(blob) == victim.blob_id
            }
            assert set(back) <= {inner, trap, b"real", b"inner one", b"inner two"}
            assert digest(b"never there") not in {lost.blob_id for lost in saved.lost}


# --- hostile packs ---------------------------------------------------------------------------------------------------


def test_an_index_that_claims_to_be_larger_than_its_pack_is_not_decompressed() -> None:
    plain = msgspec.msgpack.encode([ID, [5], [5], b"\0"]) + bytes(100_000)
    frame = zstandard.ZstdCompressor().compress(plain)
    ranges = Ranges(with_index(BODY, frame, encoding=1, size=len(plain)))
    with pytest.raises(IntegrityError):
        read_index(ranges, len(ranges.data))
    assert ranges.reads == 1, "the footer alone says enough"


def with_index(body: bytes, plain: bytes, *, encoding: int = 0, size: int | None = None, version: int = 1) -> bytes:
    """A pack with an index of one's own making, and a right digest."""
    index = b"LGPI" + plain
    sizes = struct.pack("<IIII", version, encoding, len(plain) if size is None else size, len(plain))
    return HEADER + body + index + sizes + digest(index + sizes)


ID = digest(b"hello")
BODY = pack([b"hello"])[0][HEADER_SIZE : HEADER_SIZE + HEAD + 5]


@pytest.mark.parametrize(
    "columns",
    [
        [ID, [5], [5]],
        [ID, [5], [5], b""],
        [ID, [], [5], b"\0"],
        [ID[:31], [5], [5], b"\0"],
        [ID + ID, [5, 5], [5, 5], b"\0\0"],
        [ID, [6], [6], b"\0"],
        [ID, [4], [4], b"\0"],
        [ID, [4], [5], b"\0"],
        [ID, [-5], [-5], b"\0"],
        [ID, [5], [-1], b"\1"],
        [ID, [packs.MAX_BLOB + 1], [5], b"\1"],
        [ID, [5.0], [5], b"\0"],
        [ID, [1 << 70 - 7], [5], b"\1"],
        [b"", [], [], b""],
        {"ids": ID},
        None,
    ],
)
def test_an_index_that_does_not_fit_its_pack_is_refused(columns: object) -> None:
    data = with_index(BODY, msgspec.msgpack.encode(columns))
    with pytest.raises(IntegrityError):
        opened(data)
    assert blobs_of(data, rebuilt(data)) == [b"hello"]


def test_a_pack_of_a_newer_version_is_told_from_a_damaged_one() -> None:
    right = msgspec.msgpack.encode([ID, [5], [5], b"\0"])
    data = with_index(BODY, right)
    assert blobs_of(data, opened(data)) == [b"hello"]
    with pytest.raises(FormatError):
        opened(with_index(BODY, right, version=2))


def test_an_unknown_encoding_is_refused_for_its_blob_alone() -> None:
    data = with_index(BODY, msgspec.msgpack.encode([ID, [9], [5], b"\7"]))
    (entry,) = opened(data).entries
    with pytest.raises(IntegrityError, match="unknown encoding"):
        unpack(entry, stored(data, entry), SHA256)


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=300)
def test_rubbish_is_refused_in_words(rubbish: bytes, with_magic: bool) -> None:
    """G11: a fuzzed parser raises nothing but its own errors, and reads nothing outside of the pack."""
    data = HEADER + rubbish if with_magic else rubbish
    with pytest.raises(CheckpointError):
        opened(data)
    assert rebuilt(data).entries == ()
    with pytest.raises(IntegrityError):
        opened(with_index(rubbish, rubbish[:40]))


BOMB = r"""
import resource, struct, sys
import zstandard
from lastgood.codec.pack import PackEntry, read_index, rebuild_index, unpack
from lastgood.errors import IntegrityError
from lastgood.model.identity import SHA256, digest
from zlib import crc32

maker = zstandard.ZstdCompressor(level=1).compressobj(size=1 << 31)
frame = b"".join([maker.compress(bytes(1 << 24)) for _ in range(128)] + [maker.flush()])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = 0
for size in (1000, 1 << 28, 1 << 31):
    try:
        unpack(PackEntry(digest(b"x"), 57, len(frame), size, 1), frame, SHA256)
    except IntegrityError:
        refused += 1
head = b"LGPE" + digest(b"x") + struct.pack("<IIB", 1 << 31, len(frame), 1)
index = b"LGPI" + frame
sizes = struct.pack("<IIII", 1, 1, 1 << 31, len(frame))
top = b"LGPK\1\0\0\0" + bytes(16)
whole = top + struct.pack("<I", crc32(top)) + head + struct.pack("<I", crc32(head))
pack = whole + frame + index + sizes + digest(index + sizes)
read = lambda start, length: pack[start : start + length]
try:
    read_index(read, len(pack))
except IntegrityError:
    refused += 1
assert rebuild_index(read, len(pack), SHA256).entries == ()
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    """reliability.md: bounded by the recorded size, memory flat. It would be 2 GiB."""
    done = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    refused, grown = map(int, done.stdout.split())
    assert refused == 4
    assert grown < 32, f"{grown} MiB"


def test_a_frame_that_holds_more_than_it_says_is_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(b"a" * 5000)
    for content in (frame + frame, frame + b"x", frame[:-1]):
        with pytest.raises(IntegrityError):
            unpack(PackEntry(digest(b"a" * 5000), 57, len(content), 5000, 1), content, SHA256)
    assert unpack(PackEntry(digest(b"a" * 5000), 57, len(frame), 5000, 1), frame, SHA256) == b"a" * 5000


def test_salvaging_reads_a_pack_piece_by_piece() -> None:
    """Memory flat: never more than a blob or a window at once."""
    dice = random.Random(3)
    data, index = pack([dice.randbytes(50_000) for _ in range(100)])
    at = index.entries[50].position - HEAD
    ranges = Ranges(data[:at] + b"X" + data[at + 1 : -1])
    saved = rebuild_index(ranges, len(data) - 1, SHA256)
    assert len(saved.entries) == 99
    assert ranges.largest < (1 << 20) + 10


def test_an_index_that_names_a_blob_twice_is_refused() -> None:
    with pytest.raises(IntegrityError):
        opened(with_index(BODY + BODY, msgspec.msgpack.encode([ID + ID, [5, 5], [5, 5], b"\0\0"])))


def test_a_damaged_id_is_not_told_as_the_id_of_what_is_lost() -> None:
    data, index = pack([b"one", b"two"])
    at = index.entries[0].position - HEAD + 4
    saved = rebuilt(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 : -1])
    assert [(lost.what, lost.blob_id) for lost in saved.lost] == [("bytes", None), ("index", None)]
