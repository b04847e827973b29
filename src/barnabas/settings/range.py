"""The values that a key allows, with the words that errors and the documentation use."""

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
    """Allow numbers that are at least `minimum`."""
    return Range(f"at least {minimum}", lambda value: _number(value) >= minimum)


def between(minimum: float, maximum: float) -> Range:
    """Allow numbers from `minimum` to `maximum`, both included."""
    text = f"{minimum} to {maximum}"
    return Range(text, lambda value: minimum <= _number(value) <= maximum)


def one_of(*allowed: str) -> Range:
    """Allow exactly one of these words."""
    return Range("one of " + ", ".join(allowed), lambda value: value in allowed)


def each_one_of(*allowed: str) -> Range:
    """Allow a list that contains only these words."""
    text = "a list of " + ", ".join(allowed)
    return Range(text, lambda value: isinstance(value, list) and all(v in allowed for v in value))


def each_once_of(*allowed: str) -> Range:
    """Allow a list that contains only these words, each at most once."""
    text = "a list of " + ", ".join(allowed) + ", each once"
    words = each_one_of(*allowed)
    return Range(
        text,
        lambda value: (
            words.accepts(value) and isinstance(value, list) and len(set(value)) == len(value)
        ),
    )


def not_empty() -> Range:
    """Allow a string or list that is not empty."""
    return Range("not empty", bool)


def satisfying(text: str, accepts: Callable[[ConfigValue], bool]) -> Range:
    """Allow the values that `accepts` approves, described by `text`."""
    return Range(text, accepts)


def _number(value: ConfigValue) -> float:
    assert isinstance(value, int | float), value
    return value
