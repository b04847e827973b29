"""What to say of a record that no batch takes: which part of it has the wrong type."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from barnabas.client.errors import UnfitRecordError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["raise_unfit"]

_BYTES = (bytes, bytearray, memoryview)


def raise_unfit(topic: str, record: tuple[object, ...], error: Exception) -> NoReturn:
    """A record (key, value, headers, timestamp) was refused with `error`: tell why.

    It is looked at only now, so that records that fit cost nothing.

    Raises:
        UnfitRecordError: a part of it has the wrong type.
        Exception: `error`, where it is fine.
    """
    complaint = _complaint(record)
    if complaint is None:
        raise error
    raise UnfitRecordError(topic, *complaint) from error


def _complaint(record: tuple[object, ...]) -> tuple[str, str] | None:
    """What is wrong, and what to do about it."""
    key, value, headers, timestamp = record
    for what, data in (("key", key), ("value", value)):
        if data is not None and not isinstance(data, _BYTES):
            return f"its {what} is {_kind(data)}", f"give bytes, or set {what}_serializer"
    if (wrong := _wrong_header(headers)) is not None:
        return wrong, "give pairs of a name (str) and a value (bytes or None)"
    if timestamp is not None and not isinstance(timestamp, int):
        return f"its timestamp is {_kind(timestamp)}", "give milliseconds since 1970 as an int"
    return None


def _wrong_header(headers: object) -> str | None:
    if isinstance(headers, dict | str) or not hasattr(headers, "__iter__"):
        return f"its headers are {_kind(headers)}"
    entries: Iterable[object] = headers
    for entry in entries:
        if not isinstance(entry, tuple) or len(entry) != 2:
            return f"one of its headers is {_kind(entry)}"
        name, content = entry
        if not isinstance(name, str):
            return f"the name of a header is {_kind(name)}"
        if content is not None and not isinstance(content, _BYTES):
            return f"its header {name!r} is {_kind(content)}"
    return None


def _kind(data: object) -> str:
    name = type(data).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
