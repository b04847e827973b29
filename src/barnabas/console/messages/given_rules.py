"""The rules that an operator gives to a console: the file of masks, and formats of topics."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from barnabas.console.messages.decoded import KEY, VALUE
from barnabas.console.messages.formats import DECODERS, FormatRule
from barnabas.console.messages.masking import HASH, HEADER, HIDE, LAST_4, MaskRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.console.messages.decoded import Decoded

_HOW = {"hide": HIDE, "last4": LAST_4, "hash": HASH}
_PLACES = (KEY, VALUE, HEADER)
_NAMES = {"topic", "where", "path", "how", "reveal"}
_TARGET = re.compile(r"([\w.*?\[\]!-]+)(?::(key|value))?=(.+)", re.ASCII | re.DOTALL)


class RuleError(ValueError):
    """A rule is malformed; the text says which one and what to write."""


def parse_masks(data: bytes) -> tuple[MaskRule, ...]:
    """Return the rules of a file in TOML with tables `[[mask]]`.

    Raises:
        RuleError: A rule is malformed, or there is none: a console must not start without masks
            that the operator believes to be there.
    """
    try:
        content = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RuleError(f"not TOML: {error}") from None
    rules = content.pop("mask", None)
    if content:
        raise RuleError(f"unknown name {next(iter(content))}: only tables [[mask]] are known")
    if not isinstance(rules, list) or not rules:
        raise RuleError("no rules: write at least one table [[mask]]")
    return tuple(_mask(each, f"mask {number}") for number, each in enumerate(rules, 1))


def _mask(rule: Any, at: str) -> MaskRule:
    if not isinstance(rule, dict):
        raise RuleError(f"{at} is not a table")
    unknown = rule.keys() - _NAMES
    if unknown:
        raise RuleError(f"{at}: unknown name {min(unknown)}; known: {', '.join(sorted(_NAMES))}")
    topic, reveal = rule.get("topic", ""), rule.get("reveal", False)
    if not isinstance(topic, str) or not topic:
        raise RuleError(f"{at}: topic must be a name or a pattern such as orders*")
    if rule.get("where") not in _PLACES:
        raise RuleError(f"{at}: where must be one of {', '.join(_PLACES)}")
    if rule.get("how", "hide") not in _HOW:
        raise RuleError(f"{at}: how must be one of {', '.join(_HOW)}")
    if not isinstance(reveal, bool):
        raise RuleError(f"{at}: reveal must be true or false")
    path = _path(rule.get("path", ""), at)
    return MaskRule(topic, rule["where"], path, _HOW[rule.get("how", "hide")], reveal)


def _path(path: Any, at: str) -> tuple[str, ...]:
    """Return the names of a path: a text with dots, or a list for names that have dots."""
    names = path.split(".") if isinstance(path, str) and path else path or []
    if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
        raise RuleError(f"{at}: path must be names with dots between, or a list of names")
    return tuple(names)


def parse_format(text: str) -> FormatRule:
    """Return the rule in `TOPIC[:key|:value]=FORMAT`.

    Raises:
        RuleError: It is malformed, or there is no such format.
    """
    topic, part, name = _target(text, "FORMAT")
    if name not in DECODERS:
        raise RuleError(f"{name!r} is not one of {', '.join(DECODERS)}")
    return FormatRule(topic, part, DECODERS[name])


def parse_protobuf(text: str, load: Callable[[str, str], Callable[[bytes], Decoded]]) -> FormatRule:
    """Return the rule in `TOPIC[:key|:value]=FILE:MESSAGE`.

    Args:
        text: The rule.
        load: Returns the decoder of a file and a message.

    Raises:
        RuleError: It is malformed.
    """
    topic, part, words = _target(text, "FILE:MESSAGE")
    # A file may have a colon in its name, a message may not.
    file, _, message = words.rpartition(":")
    if not file or not message:
        raise RuleError(f"{text!r}: write TOPIC=FILE:MESSAGE")
    return FormatRule(topic, part, load(file, message))


def _target(text: str, rest: str) -> tuple[str, str, str]:
    found = _TARGET.fullmatch(text)
    if found is None:
        raise RuleError(f"{text!r}: write TOPIC={rest}, TOPIC:key={rest} or TOPIC:value={rest}")
    return found[1], found[2] or VALUE, found[3]
