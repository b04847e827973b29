"""Masks: rules that hide parts of keys, values and headers from people who read the console.

A rule names topics, a part of the record, a path in that part, and how the part is masked. What
cannot be decoded has no paths, so a rule with a path then hides the whole key, value or header.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.console.messages.decoded import (
    DEPTH_MAX,
    Decoded,
    FormatError,
    decoded_value,
    is_json,
    is_text,
)
from barnabas.console.messages.xml_format import decode_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEADER = "header"
HIDE, LAST_4, HASH = "hide", "last 4", "hash"

HIDDEN = "••••"
_MASKED = "masked"
# Shorter values are hidden as a whole: four characters would be too large a part of them.
_LAST_4_LENGTH = 8
_HASH_DIGITS = 16
# Categories of characters that no reader sees: controls, and marks of format.
_INVISIBLE = ("Cc", "Cf")
# Characters before JSON or XML that readers skip: white space and the byte order mark.
_BEFORE_CONTENT = " \t\r\n\ufeff"


@dataclass(frozen=True, slots=True)
class MaskRule:
    """One rule."""

    # A pattern of names, as shells have them: `*` and `?`.
    topic: str
    # KEY, VALUE or HEADER.
    where: str
    # Names of members from the root; `*` is any name, `**` any number of names. A rule for headers
    # begins with the header's name. Without a path, the rule masks everything.
    path: tuple[str, ...] = ()
    # HIDE, LAST_4 or HASH.
    how: str = HIDE
    # Whether administrators may see the original by choice.
    reveal: bool = False


class Masks:
    """All rules of a console.

    Args:
        rules: The rules; the first that fits a part of a record masks it.
        hash_key: Secret key of hashes, without which short values could be guessed.
    """

    def __init__(self, rules: Sequence[MaskRule], hash_key: bytes) -> None:
        self._rules = [(re.compile(translate(each.topic)), each) for each in rules]
        self._hash_key = hash_key

    def of(self, topic: str, *, reveal: bool = False) -> TopicMasks:
        """Return the masks of a topic.

        Args:
            topic: The name.
            reveal: Whether to leave out the rules that administrators may lift.
        """
        fitting = [
            rule
            for pattern, rule in self._rules
            if pattern.match(topic) and not (reveal and rule.reveal)
        ]
        return TopicMasks(fitting, self._hash_key)


class TopicMasks:
    """The rules of one topic."""

    def __init__(self, rules: Sequence[MaskRule], hash_key: bytes) -> None:
        self._rules = rules
        self._hash_key = hash_key

    def __bool__(self) -> bool:
        return bool(self._rules)

    @property
    def rules(self) -> Sequence[MaskRule]:
        """The rules, in their order."""
        return self._rules

    @property
    def can_reveal(self) -> bool:
        """Whether administrators may lift one of the rules."""
        return any(rule.reveal for rule in self._rules)

    def part(self, where: str, decoded: Decoded) -> Decoded:
        """Return a key or a value with its masks."""
        return self._masked([r for r in self._rules if r.where == where], decoded, depth=0)

    def header(self, name: str, decoded: Decoded) -> Decoded:
        """Return the value of a header with its masks."""
        rules = [
            rule
            for rule in self._rules
            if rule.where == HEADER and (not rule.path or _fits(rule.path[0], name))
        ]
        return self._masked(rules, decoded, depth=1)

    def _masked(self, rules: Sequence[MaskRule], decoded: Decoded, depth: int) -> Decoded:
        """Apply rules whose first `depth` names are already compared."""
        if not rules or decoded.kind in ("null", "empty"):
            return decoded
        paths = [(rule.path[depth:], self._mask(rule.how)) for rule in rules]
        whole = next((rule.how for rule in rules if not rule.path[depth:]), None)
        if whole is not None:
            return _hidden(decoded, self._whole(whole, decoded))
        content = None if decoded.is_large else decoded.tree
        if not isinstance(content, dict | list):
            return _hidden(decoded, HIDDEN)
        masked = _apply(paths, content, DEPTH_MAX)
        # Even a value in which no path was found leaves only as what was examined: the bytes may
        # hold a member twice, or what the decoder did not read.
        note = _with(decoded.note, _MASKED) if masked != content else decoded.note
        found = decoded_value(masked, b"", note)
        found.raw, found.size = None, decoded.size
        return found

    def _whole(self, how: str, decoded: Decoded) -> str:
        """Return the mask of a whole value. Of a large one, `last 4` shows nothing."""
        if not decoded.is_large:
            return self._mask(how)(decoded.content)
        return _hash_text(decoded.digest(self._hash_key)) if how == HASH else HIDDEN

    def _mask(self, how: str) -> Callable[[Any], str]:
        if how == LAST_4:
            return _last_4
        return self._hashed if how == HASH else _hide

    def _hashed(self, value: Any) -> str:
        data = value.encode() if isinstance(value, str) else value
        if not isinstance(data, bytes):
            data = msgspec.json.encode(data)
        return _hash_text(hmac.digest(self._hash_key, data, "sha256"))


NO_MASKS = Masks((), b"")


def _fits(pattern: str, name: str) -> bool:
    """Return whether a name of a path fits a member.

    Attributes of XML begin with an @, and the writer of XML is free to choose any prefix. Names
    that look equal are equal.
    """
    if pattern in ("*", "**"):
        return True
    wanted, found = _plain_name(pattern), _plain_name(name).removeprefix("@").lstrip()
    return wanted in (found, found.rpartition(":")[2].lstrip())


@lru_cache(maxsize=10_000)
def _plain_name(name: str) -> str:
    """Return a name as readers see it, so that no other spelling of it evades a mask.

    Case, white space around it, invisible characters, and characters that look alike in the form
    NFKC make no difference.
    """
    shown = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(each for each in shown if unicodedata.category(each) not in _INVISIBLE).strip()


Paths = list[tuple[tuple[str, ...], "Callable[[Any], str]"]]


def _apply(paths: Paths, value: Any, depth: int) -> Any:
    """Return a value in which the ends of paths are masked.

    Args:
        paths: What is left of each path, at least one name, and its mask.
        value: What JSON can hold.
        depth: Number of levels below which everything is hidden.
    """
    if isinstance(value, str):
        return _apply_to_text(paths, value, depth)
    if isinstance(value, bytes):
        return _apply_to_bytes(paths, value, depth)
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return HIDDEN
    if isinstance(value, dict):
        return {name: _child(_below(paths, name), each, depth) for name, each in value.items()}
    # Paths pass through arrays; `*` may also stand for an element.
    inside = paths + [(path[1:], mask) for path, mask in paths if path[0] == "*"]
    return [_child(inside, each, depth) for each in value]


def _child(paths: Paths, value: Any, depth: int) -> Any:
    if not paths or value is None:
        return value
    mask = next((mask for path, mask in paths if not path), None)
    return _apply(paths, value, depth - 1) if mask is None else mask(value)


def _below(paths: Paths, name: str) -> Paths:
    """Return what is left of the paths below a member."""
    found: Paths = []
    for path, mask in paths:
        if path[0] == "**":
            found.append((path, mask))
            # Any number of names may be none at all.
            found += _below([(path[1:], mask)], name) if len(path) > 1 else [((), mask)]
        elif _fits(path[0], name):
            found.append((path[1:], mask))
    return found


def _apply_to_text(paths: Paths, text: str, depth: int) -> str:
    """Return a text in which the ends of paths are masked: it may be JSON or XML itself.

    Any other text is hidden where a path names a member of it, because the secret may be a part.
    A text that only begins like JSON or XML is hidden too: it may have been cut, or is too deep.
    """
    begin = text.lstrip(_BEFORE_CONTENT)
    if begin[:1] in ("{", "[", '"'):
        data = begin.encode()
        if not depth or not is_json(data):
            return HIDDEN
        masked = _apply(paths, msgspec.json.decode(data), depth - 1)
        return msgspec.json.encode(masked).decode()
    if begin[:1] == "<":
        return text if depth and _has_no_path(paths, begin, depth) else HIDDEN
    return text if all(path[0] == "**" for path, _ in paths) else HIDDEN


def _apply_to_bytes(paths: Paths, data: bytes, depth: int) -> bytes | str:
    """Return bytes within a value, in which the ends of paths are masked.

    A text in them is masked like any other. Other bytes may have members of any format.
    """
    if not is_text(data):
        return HIDDEN
    text = data.decode()
    masked = _apply_to_text(paths, text, depth)
    return data if masked == text else masked


def _has_no_path(paths: Paths, xml: str, depth: int) -> bool:
    """Return whether a text is XML in which no path names a member."""
    try:
        root = decode_xml(xml.encode()).content
    except FormatError:
        return False
    return bool(_apply(paths, root, depth - 1) == root)


def _hide(_value: Any) -> str:
    return HIDDEN


def _last_4(value: Any) -> str:
    if isinstance(value, bytes) and is_text(value):
        value = value.decode()
    if isinstance(value, str | int | float) and len(str(value)) >= _LAST_4_LENGTH:
        return HIDDEN + str(value)[-4:]
    return HIDDEN


def _hash_text(digest: bytes) -> str:
    return f"hash {digest.hex()[:_HASH_DIGITS]}"


def _hidden(decoded: Decoded, text: str) -> Decoded:
    """Return a key, value or header of which only the mask and the size are left."""
    return Decoded("hidden", text.encode(), None, decoded.size, _MASKED)


def _with(note: str, more: str) -> str:
    return f"{note}, {more}" if note else more
