"""What values a key allows, each with the words that errors and the documentation use."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

ConfigValue: TypeAlias = bool | int | float | str | list[str] | None


class Range(msgspec.Struct, frozen=True):
    """A condition on a parsed value; `text` completes the sentence "allowed: ..."."""

    text: str
    accepts: Callable[[ConfigValue], bool]


def at_least(minimum: float) -> Range:
    """Numbers from `minimum` on."""
    return Range(f"at least {minimum}", lambda value: _number(value) >= minimum)


def between(minimum: float, maximum: float) -> Range:
    """Numbers from `minimum` to `maximum`, both included."""
    text = f"{minimum} to {maximum}"
    return Range(text, lambda value: minimum <= _number(value) <= maximum)


def one_of(*allowed: str) -> Range:
    """One of these words."""
    return Range("one of " + ", ".join(allowed), lambda value: value in allowed)


def each_one_of(*allowed: str) -> Range:
    """A list made of these words."""
    text = "a list of " + ", ".join(allowed)
    return Range(text, lambda value: isinstance(value, list) and all(v in allowed for v in value))


def each_once_of(*allowed: str) -> Range:
    """A list made of these words, none of them twice."""
    text = "a list of " + ", ".join(allowed) + ", each once"
    words = each_one_of(*allowed)
    return Range(
        text,
        lambda value: (
            words.accepts(value) and isinstance(value, list) and len(set(value)) == len(value)
        ),
    )


def not_empty() -> Range:
    """A string or list with something in it."""
    return Range("not empty", bool)


def satisfying(text: str, accepts: Callable[[ConfigValue], bool]) -> Range:
    """Any other condition."""
    return Range(text, accepts)


def _number(value: ConfigValue) -> float:
    assert isinstance(value, int | float), value
    return value
