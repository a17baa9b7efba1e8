"""Messages between processes arrive whole, in bounds and in time, or not at all."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import msgspec
import pytest

from lastgood.local.channel import BadMessageError, Channel, ChannelClosedError


class Ping(msgspec.Struct, array_like=True, tag="ping"):
    data: bytes


DECODER = msgspec.msgpack.Decoder(Ping)


@pytest.fixture
def ends() -> Iterator[tuple[Channel[Ping], Channel[Ping]]]:
    one, other = socket.socketpair()
    with one, other:
        yield Channel(one, DECODER, max_bytes=1 << 20), Channel(other, DECODER, max_bytes=1 << 20)


Ends = tuple[Channel[Ping], Channel[Ping]]


def test_messages_arrive_in_their_order(ends: Ends) -> None:
    here, there = ends
    for number in range(3):
        here.send(Ping(bytes([number]) * 1000))
    assert [there.receive().data[:1] for _ in range(3)] == [b"\0", b"\1", b"\2"]


def test_the_end_is_told_from_a_message_that_was_cut_off(ends: Ends) -> None:
    here, there = ends
    here.send(Ping(b"last"))
    here.finish()
    assert there.receive().data == b"last"
    with pytest.raises(ChannelClosedError):
        there.receive()
    there._end.sendall(struct.pack(">Q", 100) + b"half")
    there.finish()
    with pytest.raises(ConnectionError) as cut:
        here.receive()
    assert not isinstance(cut.value, ChannelClosedError)


@pytest.mark.parametrize("data", [struct.pack(">Q", 1 << 21), struct.pack(">Q", 5) + b"hello"])
def test_what_is_too_long_or_not_expected_is_refused(ends: Ends, data: bytes) -> None:
    here, there = ends
    here._end.sendall(data)
    with pytest.raises(BadMessageError):
        there.receive()
    with pytest.raises(BadMessageError):
        here.send(Ping(bytes(1 << 20)))


def test_the_deadline_is_for_all_of_a_message(ends: Ends) -> None:
    here, there = ends
    here._end.sendall(struct.pack(">Q", 100) + b"half")
    with pytest.raises(TimeoutError):
        there.receive(deadline=time.monotonic() + 0.05)
    with pytest.raises(TimeoutError):
        there.send(Ping(b""), deadline=time.monotonic())
