"""Requests with values that no valid request has: null anywhere, and an unknown tagged field.

A loose class is a copy of a request class with a changed field table: each field may be null, and
there is an unknown tagged field. Otherwise the encoded bytes are the same.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.schema import (
    BYTES,
    INT32,
    RECORDS,
    STRING,
    VERSION_MAX,
    Array,
    Message,
    Struct,
    array,
    field,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Field

UNKNOWN_TAG = 9999
# The name of the unknown tagged field.
UNKNOWN_FIELD = "unknown_tagged_field"


@cache
def loose_request(api_key: int) -> type[Message]:
    """Return the loose class of a request."""
    strict = request_class(api_key)
    made: Any = _loosened(strict, (Message,), strict.__flexible_from__)
    made.__api_key__ = strict.__api_key__
    made.__versions__ = strict.__versions__
    made.__flexible_from__ = strict.__flexible_from__
    return cast("type[Message]", made)


def is_variable(each: Field) -> bool:
    """Return whether a field has a length, which can also encode null."""
    return isinstance(each.kind, Array) or each.kind in (STRING, BYTES, RECORDS)


def struct_of(kind: Any) -> type[Struct] | None:
    """Return the struct class of a field or of the items of a list; None for other kinds."""
    inside = kind.element if isinstance(kind, Array) else kind
    return inside if isinstance(inside, type) else None


def _loosened(cls: type[Struct], bases: tuple[type, ...], flexible_from: int) -> type[Struct]:
    body = {each.name: _copied(each, flexible_from) for each in cls.__fields__}
    if flexible_from <= VERSION_MAX:
        body[UNKNOWN_FIELD] = field(INT32, f"{flexible_from}+", default=0, tag=UNKNOWN_TAG)
    return type(cls)(cls.__name__, bases, body)


def _copied(each: Field, flexible_from: int) -> Any:
    kind: Any = each.kind
    inside = struct_of(kind)
    if inside is not None:
        loose = _loosened(inside, (Struct,), flexible_from)
        kind = array(loose) if isinstance(kind, Array) else loose
    default = kind if each.has_default and kind is not each.kind and inside else each.default()
    if isinstance(kind, Array):
        default = [] if each.default() is not None else None
    elif each.default() is None:
        default = None
    nullable = each.versions if is_variable(each) else each.nullable_versions
    return field(
        kind, each.versions, nullable=nullable, default=default, tag=each.tag, ignorable=True
    )
