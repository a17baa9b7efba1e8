"""The bridge between a loop and the engine: the threads in which the engine works, and handles on what is there.

A handle has the names of what it stands for, awaited where the engine may have to wait.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from lastgood.engine.engine import Closable
from lastgood.errors import UnavailableError
from lastgood.local.process import renew_after_fork

THREADS = 8  # 50 tasks that save at once: 4 to 6 ms a save with 1, 0.8 to 1.7 with 4, 0.7 with 8, 0.7 to 1 with 32
COMMANDS = 10_000  # started when they are needed: a command must not wait for others, as its end may depend on a save


C = TypeVar("C", bound=Closable)
E = TypeVar("E")
H = TypeVar("H", bound="Opened[Any]")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Bridge:
    """A store's threads. It belongs to no loop; after fork() the child has threads of its own.

    What is cancelled before a thread took it up is never done. What a thread has taken up is done to its end,
    and only then the caller is cancelled: nothing goes on unseen.
    """

    def __init__(self) -> None:
        self._far: Closable | None = None
        self._closed = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._operations = ThreadPoolExecutor(THREADS, "lastgood")
        self._commands = ThreadPoolExecutor(COMMANDS, "lastgood command")

    async def open(self, make: Callable[[], C]) -> C:
        def begin() -> C:
            self._far = made = make()
            return made

        try:
            return await self.run(begin)
        except BaseException:
            await self.close()
            raise

    async def run(self, work: Callable[[], T], *, certain: bool = False) -> T:
        """Do `work` in a thread, with the caller's context; if `certain`, whatever is cancelled."""
        return await self._submit(self._operations, work, certain)

    async def run_command(self, work: Callable[[], T], stop: Callable[[], None], *, certain: bool = False) -> T:
        """Do `work` that may take as long as it likes: nothing else waits for it, and cancelling calls `stop`."""
        return await self._submit(self._commands, work, certain, stop)

    async def close(self) -> None:
        """Take up nothing more, wait for what is under way, then close what was opened. Idempotent."""
        self._closed = True
        last = ThreadPoolExecutor(1, "lastgood closing")
        ending = last.submit(self._end)
        last.shutdown(wait=False)
        await _outcome(ending, certain=True)

    def _end(self) -> None:
        self._operations.shutdown()
        self._commands.shutdown()
        if self._far is not None:
            self._far.close()

    async def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[[], T], certain: bool, stop: Callable[[], None] | None = None
    ) -> T:
        if self._closed:
            raise UnavailableError("this store was closed", hint="open it again")
        return await _outcome(pool.submit(copy_context().run, work), certain, stop)


async def _outcome(future: Future[T], certain: bool, stop: Callable[[], None] | None = None) -> T:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def note(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop was closed, and no caller waits any more
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(note)
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            if not certain and future.cancel():
                raise
            if stop is not None:
                stop()
            cancelled = error
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()


class Handle(Generic[E]):
    """A handle on something of the engine. It has no dictionary: what cannot be set must not seem to be."""

    __slots__ = ("_bridge", "_far")

    def __init__(self, bridge: Bridge, far: E) -> None:
        self._bridge = bridge
        self._far = far

    def _reach(self) -> Any:
        """Return what methods are called on, in a thread."""
        return self._far

    def __repr__(self) -> str:
        return f"<aio {self._far!r}>"


class Opened(Handle[E]):
    """A handle with threads of its own, until it is closed."""

    __slots__ = ()

    async def close(self) -> None:
        """Wait for what is under way, then close. Whatever is asked for from now on is an UnavailableError."""
        await self._bridge.close()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Opening(Generic[H]):
    """A handle to be opened: `async with` it, or `await` it and close it yourself."""

    def __init__(self, make: Callable[[], Any], kind: Callable[[Bridge, Any], H]) -> None:
        self._make = make
        self._kind = kind

    def __await__(self) -> Generator[Any, Any, H]:
        return self._open().__await__()

    async def __aenter__(self) -> H:
        self._opened = await self
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        await self._opened.close()

    async def _open(self) -> H:
        bridge = Bridge()
        return self._kind(bridge, await bridge.open(self._make))


def opening(make: Callable[P, C], kind: Callable[[Bridge, C], H]) -> Callable[P, Opening[H]]:
    """Make a function that opens what `make` makes, with its arguments."""

    @functools.wraps(make, assigned=("__doc__",), updated=())
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opening[H]:
        return Opening(functools.partial(make, *args, **kwargs), kind)

    return opened


@overload
def bridged(
    method: Callable[Concatenate[E, P], R],
) -> Callable[Concatenate[Handle[Any], P], Coroutine[Any, Any, R]]: ...


@overload
def bridged(
    method: Callable[Concatenate[E, P], R], to: Callable[[Bridge, R], T]
) -> Callable[Concatenate[Handle[Any], P], Coroutine[Any, Any, T]]: ...


def bridged(method: Callable[..., Any], to: Callable[[Bridge, Any], Any] | None = None) -> Callable[..., Any]:
    """Make a coroutine of a method of the engine; its result as it is, or as `to` wraps it."""

    @functools.wraps(method)
    async def operation(self: Handle[Any], *args: Any, **kwargs: Any) -> Any:
        def work() -> Any:
            given = {name: value._far if isinstance(value, Handle) else value for name, value in kwargs.items()}
            result = method(self._reach(), *args, **given)
            return result if to is None else to(self._bridge, result)

        return await self._bridge.run(work)

    return operation


def mirrored(
    method: Callable[Concatenate[E, P], R], make: Callable[..., T]
) -> Callable[Concatenate[Handle[Any], P], T]:
    """Give `make`, which is called with the handle at once, the arguments of a method of the engine."""

    @functools.wraps(method)
    def operation(handle: Handle[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return make(handle, *args, **kwargs)

    return operation


class Attribute(Generic[T]):
    """An attribute of the engine, under the name that it has there."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class Plain(Attribute[T]):
    """An attribute that is in memory and read at once; as it is, or as `to` wraps it."""

    def __init__(self, to: Callable[[Bridge, Any], T] | None = None) -> None:
        self._to = to

    def __get__(self, handle: Handle[Any], kind: type) -> T:
        value = getattr(handle._far, self.name)
        return value if self._to is None else self._to(handle._bridge, value)


class Awaited(Generic[T]):
    """A value that is read when it is awaited. Compared or tested without that, it raises: it has no answer yet."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._fetch = fetch

    def __await__(self) -> Generator[Any, Any, T]:
        return self._fetch().__await__()

    def __eq__(self, other: object) -> bool:
        raise TypeError("this is read from the store: await it first")

    def __bool__(self) -> bool:
        raise TypeError("this is read from the store: await it first")

    __hash__ = object.__hash__


class Fetched(Attribute[T]):
    """An attribute that may have to be read from the store: `await checkpoint.state`."""

    def __get__(self, handle: Handle[Any], kind: type) -> Awaited[T]:
        return Awaited(lambda: handle._bridge.run(lambda: getattr(handle._reach(), self.name)))
