"""Plain data as values of a type the caller names."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from lastgood.codec.append_list import AppendList
from lastgood.codec.classes import class_name, registered_class
from lastgood.errors import InvalidError

T = TypeVar("T")


def as_type(plain: Any, type: type[T]) -> T:
    """`plain` as a `type`. Raises InvalidError, naming the path of what does not fit."""
    try:
        if hasattr(type, "model_validate"):
            return _from_plain(type, plain)  # type: ignore[no-any-return]
        return msgspec.convert(plain, type, dec_hook=_from_plain)
    except (msgspec.ValidationError, ValueError, TypeError, NotImplementedError) as error:
        raise InvalidError(
            f"the state is not a {class_name(type)}: {error}", hint="load it without a type to see what it is"
        ) from error


def _from_plain(type: Any, plain: Any) -> Any:
    if hasattr(type, "model_validate"):
        return type.model_validate(plain)
    if type is AppendList:
        return AppendList(plain)
    if (entry := registered_class(type)) is not None:
        return entry.from_plain(plain)
    if isinstance(plain, type):
        return plain
    raise NotImplementedError(f"values of {class_name(type)} cannot be made from plain data")
