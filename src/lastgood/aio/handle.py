"""What stands for the engine on this side of the bridge: same names, awaited where the engine may have to wait."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from lastgood.aio.bridge import Bridge, Closable

E = TypeVar("E")
C = TypeVar("C", bound=Closable)
H = TypeVar("H", bound="Opened[Any]")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Handle(Generic[E]):
    """Something of the engine's, on this side. Without a dictionary: what cannot be set must not seem to be."""

    __slots__ = ("_bridge", "_far")

    def __init__(self, bridge: Bridge, far: E) -> None:
        self._bridge = bridge
        self._far = far

    def __repr__(self) -> str:
        return f"<aio {self._far!r}>"


class Opened(Handle[E]):
    """What has threads of its own, until it is closed."""

    __slots__ = ()

    async def close(self) -> None:
        """Wait for what is under way, then close. Whatever is asked for from now on is an UnavailableError."""
        await self._bridge.close()

    aclose = close

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Opening(Generic[H]):
    """What will be open: `async with` it, or `await` it and close it yourself."""

    def __init__(self, make: Callable[[], Any], kind: Callable[[Bridge, Any], H]) -> None:
        self._make = make
        self._kind = kind

    def __await__(self) -> Generator[Any, Any, H]:
        return self._open().__await__()

    async def __aenter__(self) -> H:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.close()

    async def _open(self) -> H:
        bridge = Bridge()
        return self._kind(bridge, await bridge.open(self._make))


def opening(make: Callable[P, C], kind: Callable[[Bridge, C], H]) -> Callable[P, Opening[H]]:
    """A function that opens what `make` makes, with its arguments."""

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
    """A method of the engine's, awaited; what it gives as it is, or as `to` makes it for this side."""

    @functools.wraps(method)
    async def operation(self: Handle[Any], *args: Any, **kwargs: Any) -> Any:
        work = functools.partial(method, self._far, *args, **kwargs)
        return await self._bridge.run(work if to is None else lambda: to(self._bridge, work()))

    return operation


class Named(Generic[T]):
    """An attribute of the engine's, under the name that it has there."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class Plain(Named[T]):
    """Read at once, as it is in memory; as it is, or as `to` makes it for this side."""

    def __init__(self, to: Callable[[Bridge, Any], T] | None = None) -> None:
        self._to = to

    def __get__(self, handle: Handle[Any], kind: type) -> T:
        value = getattr(handle._far, self.name)
        return value if self._to is None else self._to(handle._bridge, value)


class Fetched(Named[T]):
    """Awaited, as it may have to be read from the store: `await checkpoint.state()`."""

    def __get__(self, handle: Handle[Any], kind: type) -> Callable[[], Coroutine[Any, Any, T]]:
        return lambda: handle._bridge.run(lambda: getattr(handle._far, self.name))
