"""Count the error codes in a response (Kafka: `errorCounts` of a response).

The counting function is generated once per response class from its field table. It has one loop for
each array that contains an `error_code`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.compiling import compile_function
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Array, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.schema import Message

_FIELD = "error_code"
# The largest code that has its own count.
_LAST = int(max(ErrorCode))


def step_error_counter(
    response: type[Message],
) -> Callable[[Message, list[int]], Generator[None, None, None]]:
    """Return a counter like `error_counter`, as a generator that yields before each array item."""
    body = _lines(response, "response", 1, in_steps=True)
    source = "\n".join(["def count_errors(response, counts):", "    yield", *body, ""])
    return compile_function(source, "count_errors", f"{response.__name__} errors in steps", {})


def error_counter(response: type[Message]) -> Callable[[Message, list[int]], None]:
    """Return a function that adds one to `counts[code]` for each error code, including NONE.

    The last element counts code -1 and unknown codes.
    """
    body = _lines(response, "response", 1) or ["    return"]
    source = "\n".join(["def count_errors(response, counts):", *body, ""])
    return compile_function(source, "count_errors", f"{response.__name__} errors", {})


def _lines(struct: type[Struct], variable: str, depth: int, *, in_steps: bool = False) -> list[str]:
    indent = "    " * depth
    lines: list[str] = []
    for each in struct.__fields__:
        kind = each.kind
        if each.name == _FIELD:
            lines += [
                f"{indent}code = {variable}.{_FIELD}",
                f"{indent}counts[code if 0 <= code <= {_LAST} else -1] += 1",
            ]
        elif isinstance(kind, Array) and isinstance(kind.element, type):
            inner = _lines(kind.element, f"each_{depth}", depth + 1, in_steps=in_steps)
            if inner:
                # A nullable array may be None.
                lines.append(f"{indent}for each_{depth} in {variable}.{each.name} or ():")
                if in_steps:
                    lines.append(f"{indent}    yield")
                lines += inner
    return lines
