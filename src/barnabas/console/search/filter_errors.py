"""What is wrong with a filter, in words for readers who do not know the library's parser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPARISON = 'value.amount > 50.0 && key == "a"'
_MEMBER = "has(value.error)"
_KINDS = {
    "int": "a whole number",
    "uint": "a whole number",
    "double": "a number",
    "string": "a text",
    "bytes": "bytes",
    "bool": "true or false",
    "dyn": "any value",
    "null_type": "null",
    "timestamp": "a time",
    "google.protobuf.Timestamp": "a time",
    "duration": "a length of time",
    "google.protobuf.Duration": "a length of time",
    "list": "a list",
    "map": "an object",
}
# The types of members and elements do not matter to the reader.
_CONTAINER = re.compile(r"\b(list|map)\([^()]*\)")
_WORDS = {"and": "&&", "or": "||", "not": "!"}
_NOISE = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$| \(in container ''\)| expecting \{.*\}")


class Explanation(NamedTuple):
    """A reason, and a filter that is valid."""

    reason: str
    example: str = _COMPARISON


def _name_is_unknown(found: re.Match[str]) -> Explanation:
    operator = _WORDS.get(found[1].lower())
    if operator is not None:
        return Explanation(f"{found[1]} is not an operator: write {operator}")
    return Explanation(f"there is no variable and no function {found[1]}")


def _token_is_unknown(found: re.Match[str]) -> Explanation:
    text = found[1].strip()
    if text.startswith("="):
        return Explanation("one = has no meaning: write == to compare", 'key == "a"')
    if text[:1] in ("'", '"'):
        return Explanation("the text has no quotation mark at its end", 'key == "a"')
    return Explanation(f"{text} has no meaning in a filter")


def _types_do_not_fit(found: re.Match[str]) -> Explanation:
    function, kinds = found[1], _CONTAINER.sub(r"\1", found[2]).split(", ")
    words = [_KINDS.get(kind, kind) for kind in kinds]
    if function.startswith("_") and len(words) == 2:
        operator = function.strip("_")
        return Explanation(f"{operator} does not work with {words[0]} and {words[1]}")
    return Explanation(f"{function.strip('_')} does not work with {' and '.join(words)}")


def _fixed(reason: str, example: str = _COMPARISON) -> Callable[[re.Match[str]], Explanation]:
    """Return a function that puts the first group of a match into a reason."""
    return lambda found: Explanation(
        reason.format(*found.groups()) if found.groups() else reason, example
    )


# The first pattern that a reason of the library contains decides.
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Explanation]], ...] = (
    (re.compile(r"missing '(.+?)' at '<EOF>'"), _fixed("{0} is missing at the end")),
    (re.compile(r"missing '(.+?)' at '(.+?)'"), _fixed("{0} is missing before {1}")),
    (
        re.compile(r"(?:(?:extraneous|mismatched) input|no viable alternative at input) '.*<EOF>'"),
        _fixed("the filter ends too early: a value is missing"),
    ),
    (
        re.compile(r"(?:extraneous|mismatched) input '(.+?)' expecting <EOF>"),
        _fixed("{0} is not expected here: write && or || between two conditions"),
    ),
    (re.compile(r"(?:extraneous|mismatched) input '(.+?)'"), _fixed("{0} is not expected here")),
    (re.compile(r"no viable alternative at input '(.+)'"), _fixed("{0} cannot be read")),
    (re.compile(r"token recognition error at: '(.*)'"), _token_is_unknown),
    (re.compile(r"undeclared reference to '(.+?)'"), _name_is_unknown),
    (
        re.compile(r"found no matching overload for '(.+?)' applied to '(?:.*\.)?\((.*)\)'"),
        _types_do_not_fit,
    ),
    (
        re.compile(r"has\(\) argument must be a field selection"),
        _fixed("has() asks for a member", _MEMBER),
    ),
)
# The library's reasons for a single message.
_PLAIN_WORDS = (
    ("Key not found in map : ", "there is no member "),
    ("Applying SELECT to non-message type", "it asks for a member of a value without members"),
    ("No matching overloads found : ", "the values do not have the types of "),
)


def kind_in_words(name: str) -> str:
    """Return what readers call a type of the library."""
    return _KINDS.get(name.lower(), name.lower())


def explain(reason: str) -> Explanation:
    """Return what a reason of the parser or of the type checker means."""
    for pattern, make in _RULES:
        found = pattern.search(reason)
        if found is not None:
            return make(found)
    return Explanation(plain(reason))


def plain(reason: str) -> str:
    """Return a reason without the library's names for parts of its grammar."""
    text = _NOISE.sub("", reason)
    for theirs, ours in _PLAIN_WORDS:
        text = text.replace(theirs, ours)
    return text.replace("Syntax error: ", "").replace("<EOF>", "the end of the filter")
