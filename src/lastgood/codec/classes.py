"""Classes of the user's program whose values stand in state.

A registered class comes back as it was. Any other dataclass, model, enum or subclass of a built-in is kept as
plain data with its class's name beside it, comes back as plain data, and that is announced once. Nothing is
ever imported by name.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from pathlib import PosixPath, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from lastgood.errors import InvalidError

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120

T = TypeVar("T")


class PlainDataWarning(UserWarning):
    """A value will come back as plain data, because its class is not registered."""


class Registered(NamedTuple):
    """A class whose values come back as they were."""

    name: str
    cls: type
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


_lock = threading.Lock()
_by_class: dict[type, Registered] = {}
_by_name: dict[str, Registered] = {}
_announced: set[type] = set()
_REFUSED = object()
"""In place of a plain value that would leave something out: attributes of its own, private fields."""


class _Decorator(Protocol):
    """A decorator that returns any class as it is."""

    def __call__(self, cls: type[T], /) -> type[T]: ...


@overload
def register(cls: type[T], /) -> type[T]: ...
@overload
def register(*, name: str | None = ...) -> _Decorator: ...
@overload
def register(
    *, name: str | None = ..., to_plain: Callable[[T], Any] | None = ..., from_plain: Callable[[Any], T] | None = ...
) -> Callable[[type[T]], type[T]]: ...
def register(
    cls: type[T] | None = None,
    /,
    *,
    name: str | None = None,
    to_plain: Callable[[T], Any] | None = None,
    from_plain: Callable[[Any], T] | None = None,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Let values of a class come back as they were. A decorator, plain or with arguments.

    `name` is what is stored, and must stay the same while stores with it exist (default: module and qualified
    name). Dataclasses, pydantic models, enums, named tuples and subclasses of built-ins need no functions;
    for any other class give `to_plain` and `from_plain`.
    """
    if cls is None:
        return lambda cls: _register(cls, name, to_plain, from_plain)
    return _register(cls, name, to_plain, from_plain)


def _register(
    cls: type[T],
    name: str | None,
    to_plain: Callable[[T], Any] | None,
    from_plain: Callable[[Any], T] | None,
) -> type[T]:
    if not isinstance(cls, type):
        raise InvalidError(f"only classes can be registered, not {type(cls).__name__}")
    if (to_plain is None) != (from_plain is None):
        raise InvalidError("to_plain and from_plain go together", hint="give both, or neither")
    if to_plain is None or from_plain is None:
        shape = _shape_of(cls)
        rebuild = _rebuilder(cls) if shape else None
        if shape is None or rebuild is None:
            raise InvalidError(
                f"{class_name(cls)} cannot be taken apart by itself", hint="give register() to_plain and from_plain"
            )
        to_plain, from_plain = shape, rebuild
    entry = Registered(name or class_name(cls), cls, to_plain, from_plain)
    with _lock:
        if (other := _by_name.get(entry.name)) is not None and class_name(other.cls) != class_name(cls):
            raise InvalidError(f"{entry.name!r} is registered for {class_name(other.cls)} already")
        _by_name[entry.name] = _by_class[cls] = entry
    return cls


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def registered_name(name: str) -> Registered | None:
    return _by_name.get(name)


def take_apart(value: object) -> tuple[str, Any] | None:
    """Return (class name, plain value) one level deep; None when a value of this class cannot be kept."""
    cls = type(value)
    if (entry := _by_class.get(cls)) is not None:
        return entry.name, entry.to_plain(value)
    shape = _shape_of(cls)
    if shape is None:
        return None
    plain = shape(value)
    if plain is _REFUSED:
        return None
    if cls not in _announced:
        warnings.warn(
            f"values of {class_name(cls)} are kept as plain data and come back as "
            f"{type(plain).__name__}; lastgood.register() it, or read with task.load(Type)",
            PlainDataWarning,
            stacklevel=_frames_inside(),
        )
        _announced.add(cls)
    return class_name(cls), plain


def as_type(plain: Any, type: type[T]) -> T:
    """Return plain data as a `type`. Raises InvalidError, naming the path of what does not fit."""
    try:
        if hasattr(type, "model_validate"):
            return _from_plain(type, plain)  # type: ignore[no-any-return]
        return msgspec.convert(plain, type, dec_hook=_from_plain)
    except (msgspec.ValidationError, ValueError, TypeError, NotImplementedError) as error:
        raise InvalidError(
            f"the state is not a {getattr(type, '__qualname__', type)}: {error}",
            hint="load it without a type to see what it is",
        ) from error


def _from_plain(type: Any, plain: Any) -> Any:
    if hasattr(type, "model_validate"):
        return type.model_validate(plain)
    if (entry := _by_class.get(type)) is not None:
        return entry.from_plain(plain)
    if isinstance(plain, type):
        return plain
    raise NotImplementedError(f"values of {class_name(type)} cannot be made from plain data")


_BASES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
    list: lambda value: list.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    OrderedDict: lambda value: dict(OrderedDict.items(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


def _shape_of(cls: type) -> Callable[[Any], Any] | None:
    """Return how values of `cls` become plain, one level deep."""
    if issubclass(cls, Enum):
        return lambda value: value.value
    if _is_model(cls):
        return _model_fields
    base = next((base for base in _BASES if issubclass(cls, base)), None)
    if (names := _field_names(cls)) is not None:
        return None if base or issubclass(cls, BaseException) else lambda value: _fields(value, names)
    if base is None:
        return None
    plain = _BASES[base]
    return lambda value: _REFUSED if getattr(value, "__dict__", None) else plain(value)


def _fields(value: object, names: list[str]) -> Any:
    """Return the fields of `value`, unless it has other attributes beside them that are more than cached properties."""
    others = vars(value).keys() - set(names) if hasattr(value, "__dict__") else ()
    if any(not isinstance(getattr(type(value), name, None), cached_property) for name in others):
        return _REFUSED
    return {name: getattr(value, name) for name in names}


def _is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_fields__") and hasattr(cls, "model_construct")


def _model_fields(model: Any) -> Any:
    return _REFUSED if model.__pydantic_private__ else {**model.__dict__, **(model.__pydantic_extra__ or {})}


def _field_names(cls: type) -> list[str] | None:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if isinstance(names := getattr(cls, "__struct_fields__", None), tuple):  # msgspec
        return list(names)
    attrs = getattr(cls, "__attrs_attrs__", None)
    return None if attrs is None else [attribute.name for attribute in attrs]


def _rebuilder(cls: type) -> Callable[[Any], Any] | None:
    """Return how a value of `cls` is made again; None when only the class knows."""
    if _is_model(cls):
        return lambda plain: _rebuild_model(cls, plain)
    if hasattr(cls, "__struct_fields__"):
        return lambda plain: cls(**plain)
    if _field_names(cls) is not None:
        return lambda plain: _rebuild(cls, plain)
    if issubclass(cls, tuple) and hasattr(cls, "_make"):
        return cls._make  # type: ignore[no-any-return]
    if issubclass(cls, Enum):
        return cls
    base = next(base for base in _BASES if issubclass(cls, base))
    same = all(getattr(cls, name) is getattr(base, name) for name in ("__new__", "__init__"))
    return cls if same else None


def _rebuild_model(cls: Any, plain: dict[str, Any]) -> Any:
    # As _rebuild, for pydantic, whose own ways of making a model run the model's code.
    model = cls.__new__(cls)
    known = cls.__pydantic_fields__
    extra = {name: item for name, item in plain.items() if name not in known}
    object.__setattr__(model, "__dict__", {name: item for name, item in plain.items() if name in known})
    object.__setattr__(model, "__pydantic_fields_set__", set(plain))
    object.__setattr__(model, "__pydantic_extra__", extra if cls.model_config.get("extra") == "allow" else None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model


def _rebuild(cls: type, plain: dict[str, Any]) -> Any:
    # Not through __init__: the value comes back as it was, not as it would be made today.
    value: Any = object.__new__(cls)
    for name, item in plain.items():
        object.__setattr__(value, name, item)
    return value


_register(OrderedDict, "collections.OrderedDict", dict, OrderedDict)
_register(Counter, "collections.Counter", dict, Counter)
_register(deque, "collections.deque", lambda value: [list(value), value.maxlen], lambda plain: deque(*plain))
_register(PurePosixPath, "pathlib.PurePosixPath", str, PurePosixPath)
_register(PosixPath, "pathlib.PosixPath", str, PosixPath)


def _frames_inside() -> int:
    """Return the level of the stack, for a warning, at which somebody called lastgood."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
