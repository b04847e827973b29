"""Limits for schemas, so that a hostile schema costs about a second at most.

Checks of schemas recurse from type to type. A chain of types may be longer than Python's stack, so
these functions are generators: each yields the calls that it makes, and `run` has a stack of its
own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar, cast

from barnabas.registry.schemas.model import InvalidSchemaError, ResolvedReference

# Limit for the text of a schema, in characters, and for the texts of all its references.
TEXT_MAX = 1 << 20
ALL_TEXTS_MAX = 8 << 20
# Limit for the nesting of JSON. A record within a record adds four levels.
DEPTH_MAX = 256
REFERENCES_MAX = 1000
# Limit for the steps of one check, such as comparisons of two types.
STEPS_MAX = 100_000
# Limit for the messages of one check.
MESSAGES_MAX = 100

_T = TypeVar("_T")
# A function that may call itself: it yields each call, and gets its result.
Steps: TypeAlias = Generator["Steps[Any]", Any, _T]


class Budget:
    """Counts the steps of a check.

    Args:
        steps: The limit.
    """

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            InvalidSchemaError: They are more than the limit.
        """
        self._left -= steps
        if self._left < 0:
            raise InvalidSchemaError("the schema is too complex: a check of it has too many steps")


def run(first: Steps[_T]) -> _T:
    """Return the result of a generator that yields the calls it makes."""
    stack: list[Steps[Any]] = [first]
    result: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as stop:
            stack.pop()
            result = stop.value
    return cast("_T", result)


def check_size(text: str) -> None:
    """Check the length of a text.

    Raises:
        InvalidSchemaError: The text is too long.
    """
    if len(text) > TEXT_MAX:
        raise InvalidSchemaError(f"the schema has {len(text)} characters: the limit is {TEXT_MAX}")


def all_references(references: tuple[ResolvedReference, ...]) -> list[ResolvedReference]:
    """Return all references, each name once, behind those that it refers to itself.

    Raises:
        InvalidSchemaError: They are too many or too long.
    """
    found: list[ResolvedReference] = []
    seen: set[str] = set()
    size = 0
    # A reference is there twice: before, and after what it refers to.
    pending = [(each, False) for each in reversed(references)]
    while pending:
        each, is_done = pending.pop()
        if is_done:
            found.append(each)
            continue
        name = each.reference.name
        if name in seen:
            continue
        seen.add(name)
        size += len(each.text)
        if len(seen) > REFERENCES_MAX or size > ALL_TEXTS_MAX:
            raise InvalidSchemaError(
                f"the schema has too many references: the limits are {REFERENCES_MAX} schemas "
                f"and {ALL_TEXTS_MAX} characters"
            )
        pending.append((each, True))
        pending += [(inner, False) for inner in reversed(each.references)]
    return found
