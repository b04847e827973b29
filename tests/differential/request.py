"""Requests from plain values: `request(ApiKey.METADATA, 9, {"topics": [{"name": "a"}]})`.

A field without a value has its default, and fields that a version lacks are omitted. So a case
names only the fields that it tests, and works in every version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.schema import Array, Struct

if TYPE_CHECKING:
    from barnabas.protocol.api_table import ApiKey
    from barnabas.protocol.schema import Message

Values = Mapping[str, Any]


def request(api: ApiKey, version: int, values: Values, cls: type[Message] | None = None) -> Message:
    """Return a request of an API in a version.

    Args:
        api: the API.
        version: the version that decides which fields are set.
        values: the fields by name.
        cls: the class of the request; by default the class of the API.
    """
    made = _struct(cls or request_class(api), version, values)
    assert made.__api_key__ == api
    return made


def _struct(cls: Any, version: int, values: Values) -> Any:
    fields = {each.name: each for each in cls.__fields__}
    unknown = values.keys() - fields.keys()
    assert not unknown, f"{cls.__name__} has no {unknown}"
    return cls(
        **{
            name: _value(each.kind, version, values[name])
            if name in values and each.is_in(version)
            else each.default()
            for name, each in fields.items()
        }
    )


def _value(kind: Any, version: int, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value(kind.element, version, item) for item in value]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct(kind, version, value)
    return value
