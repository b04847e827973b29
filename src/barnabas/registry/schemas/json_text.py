"""JSON of schemas: read with limits, and written in one way.

Objects keep their order, and numbers their text, so that a canonical text differs from the given
one in white space only, as Jackson writes it for Confluent's registry.
"""

from __future__ import annotations

import json
import math
import sys
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NoReturn, Self

from barnabas.registry.schemas.limits import DEPTH_MAX, check_size
from barnabas.registry.schemas.model import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Callable


class JsonFloat(float):
    """A number that is not an integer, with its text."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Self:
        """Keep the text of the number."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


def load(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidSchemaError: The text is no JSON, too long, or nested too deep.
    """
    check_size(text)
    try:
        value = json.loads(text, parse_float=JsonFloat, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchemaError("the schema is too complex: it is nested too deep") from None
    except ValueError as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from None
    check_depth(value)
    return value


def plain(text: str) -> Any:
    """Return the value of a JSON text that `load` accepts, with usual numbers."""
    return json.loads(text, parse_float=_finite)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)


def dump(value: Any, sort: bool = False, number: Callable[[float], str] | None = None) -> str:
    """Return the text of a value without white space.

    Args:
        value: What `load` returned.
        sort: Whether the keys of objects are sorted.
        number: Returns the text of a number that is not an integer; None for its given text.

    Raises:
        InvalidSchemaError: A string has half of a surrogate pair.
    """
    text = _Writer(sort, number or _given_text).text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchemaError("a string of the schema has half of a surrogate pair") from None
    return text


def java_double(value: float) -> str:
    """Return the text of a double as Java writes it, such as 1.0E10."""
    text = repr(float(value))
    if math.isinf(value):
        # JSON has no such number.
        return '"-Infinity"' if value < 0 else '"Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    digits = text.partition("e")[0].replace(".", "").lstrip("-").strip("0")
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def _given_text(value: float) -> str:
    return value.text if isinstance(value, JsonFloat) else java_double(value)


def _refuse_constant(word: str) -> NoReturn:
    raise InvalidSchemaError(f"the schema is not JSON: {word} is no number of JSON")


def check_depth(value: Any) -> None:
    """Check that functions can recurse over a value.

    Raises:
        InvalidSchemaError: It is nested too deep.
    """
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        if not below:
            return
        level = below
    raise InvalidSchemaError(
        f"the schema is too complex: it is nested over {DEPTH_MAX} levels deep"
    )


class _Writer:
    def __init__(self, sort: bool, number: Callable[[float], str]) -> None:
        self._sort = sort
        self._number = number

    def text(self, value: Any) -> str:
        if isinstance(value, dict):
            items = sorted(value.items()) if self._sort else value.items()
            inner = [f"{encode_basestring(key)}:{self.text(each)}" for key, each in items]
            return "{" + ",".join(inner) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self.text, value)) + "]"
        if isinstance(value, str):
            return encode_basestring(value)
        if isinstance(value, float):
            return self._number(value)
        return "null" if value is None else str(value).lower()
