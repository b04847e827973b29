"""The messages of a compatibility check, as registries of Confluent's kind write them.

A message is `{errorType:'TYPE', description:'TEXT', additionalInfo:'TEXT'}`. Other messages follow
that name the level, the earlier version or its schema. A message in another form stays as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

# Avro's texts are in single quotation marks, those of the other types in double ones.
_PROBLEM = re.compile(
    r"""\{errorType:["']?\w*["']?, description:["'](?P<text>.*?)["']"""
    r"""(?:, additionalInfo:["'](?P<more>.*)["'])?\}""",
    re.DOTALL,
)
_NOTE = re.compile(r"\{(validateFields|compatibility|oldSchemaVersion|oldSchema)\b.*\}", re.DOTALL)
_LEVEL = re.compile(r"\bcompatibility: '(\w+)'")


class Incompatibilities(NamedTuple):
    """What makes a schema incompatible, for people."""

    # A sentence for each problem.
    problems: Sequence[str]
    # The compatibility level that was checked, as " (LEVEL)"; "" if the registry does not name it.
    level: str

    @classmethod
    def of(cls, messages: Sequence[str]) -> Self:
        """Return the problems in the messages of a registry."""
        notes = [each for each in messages if _NOTE.fullmatch(each)]
        problems = [_sentence(each) for each in messages if each not in notes]
        levels = [found[1] for found in map(_LEVEL.search, notes) if found]
        return cls(problems or messages, f" ({levels[0]})" if levels else "")


def _sentence(message: str) -> str:
    found = _PROBLEM.fullmatch(message)
    if found is None:
        return message
    text, more = found["text"], found["more"]
    # The additional information is often a name that the text has, too.
    return text if not more or more in text else f"{text} ({more})"
