"""Regular expressions from clients and operators, compiled and matched in bounded work.

This is the only module that compiles them; `java_pattern` translates an operator's patterns of
Java's syntax. The engine is RE2 with its syntax: a match takes time
that is linear in the text. Python's `re` backtracks: `(a+)+b` takes minutes on 40 letters.

RE2 bounds the memory of its program only, after it has parsed the pattern. It needs quadratic
memory for nested captures, 0.2 ms for each Unicode class, and a copy for each repetition. So the
size of a pattern is estimated before it is compiled, and captures are left out unless needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barnabas.runtime.packages import needed_for

if TYPE_CHECKING:
    from collections.abc import Callable

# Limits of a pattern: its characters, the depth of its groups, and its estimated size. A character
# has size 1, and a repetition multiplies the size of what it repeats.
CHARACTERS_MAX = 4096
DEPTH_MAX = 100
SIZE_MAX = 4096
# Captures of a pattern that is compiled with captures.
CAPTURES_MAX = 100
# Limit on the size of the pattern times the length of a text. Longer texts never match.
_WORK_MAX = 2 << 20
# Memory of a compiled pattern, in bytes.
_MEMORY = 256 << 10
# Size of a class such as \pL, whose Unicode ranges RE2 copies.
_UNICODE_CLASS_SIZE = 200
_SIMPLE_REPETITIONS = "*+?"
# Patterns that match only themselves.
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")
_REPEAT_DIGITS_MAX = 4
# Escapes with a name or a number behind them: one character, or more in braces.
_NAMED_ESCAPES = ("p", "P", "x")


class PatternError(ValueError):
    """The text is not a regular expression, or it exceeds a limit."""


class PatternTooLargeError(PatternError):
    """The pattern exceeds a limit."""


class Pattern:
    """A compiled pattern. Two patterns with the same text are equal."""

    __slots__ = ("_fullmatch", "_text_characters_max", "has_nested_sets", "text")

    def __init__(self, text: str) -> None:
        """Compile the pattern.

        Raises:
            PatternError: the text is not a pattern of RE2's syntax, or exceeds a limit.
        """
        self.text = text
        if _LITERAL.fullmatch(text):
            # Such a text costs nothing, whatever its length.
            self.has_nested_sets = False
            self._text_characters_max = len(text)
            self._fullmatch: Callable[[str], object] = {text: True}.get
            return
        size = _measured(text)
        # Whether a set has `[` or `&&` in it, which Java's syntax takes for sets in sets.
        self.has_nested_sets = size.has_nested_sets
        self._text_characters_max = _WORK_MAX // max(1, size.total)
        self._fullmatch = _compiled(text, has_captures=False).fullmatch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return len(text) <= self._text_characters_max and self._fullmatch(text) is not None


def compile_with_captures(text: str) -> Any:
    """Compile an operator's pattern, whose matches have groups.

    Python's `re` compiles what RE2 does not support, such as assertions. A client's pattern must
    not be compiled here, because a match may then take any time.

    Raises:
        PatternError: the text is not a pattern, or exceeds a limit.
    """
    if _measured(text).groups > CAPTURES_MAX:
        raise PatternTooLargeError(f"it has more than {CAPTURES_MAX} groups")
    try:
        return _compiled(text, has_captures=True)
    except PatternError:
        pass
    try:
        return re.compile(text)
    except re.error as error:
        raise PatternError(str(error)) from None


def _measured(text: str) -> _Size:
    if len(text) > CHARACTERS_MAX:
        raise PatternTooLargeError(f"it has more than {CHARACTERS_MAX} characters")
    size = _Size(text)
    size.measure()
    return size


def _compiled(text: str, *, has_captures: bool) -> Any:
    with needed_for("a regular expression"):
        import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = not has_captures
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        message = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(message) from None
    except UnicodeEncodeError:
        raise PatternError("it has a character that UTF-8 cannot encode") from None
    finally:
        # Drop the cache of the library, which keeps 128 patterns.
        re2.purge()


class _Size:
    """An estimate of a pattern's size. RE2 finds the errors of the syntax afterwards."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # Sizes of the whole pattern and of the open groups, each without the groups that are open
        # in it and without the last atom. `total` is their sum.
        self._open = [0]
        self.total = 0
        # Size of the last atom, which a repetition multiplies.
        self._atom = 0
        self.groups = 0
        self.has_nested_sets = False

    def measure(self) -> None:
        """Read the pattern once.

        Raises:
            PatternError: the size or the depth exceeds its limit.
        """
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == "(":
                self._begin_group()
            elif character == ")":
                self._end_group()
            elif character in _SIMPLE_REPETITIONS:
                self._set_atom(self._atom + 1)
            elif character == "{":
                self._repeat()
            else:
                self._begin_atom(self._size_from(character))
        while len(self._open) > 1:
            self._end_group()
        self._begin_atom(0)

    def _begin_group(self) -> None:
        self._begin_atom(0)
        self._open.append(0)
        self.groups += 1
        if len(self._open) > DEPTH_MAX + 1:
            raise PatternTooLargeError(f"groups are nested more than {DEPTH_MAX} levels deep")

    def _end_group(self) -> None:
        if len(self._open) > 1:
            self._begin_atom(0)
            inner = self._open.pop()
            self.total -= inner
            self._set_atom(inner + 1)

    def _begin_atom(self, size: int) -> None:
        """Add the last atom to its group, and begin another atom."""
        self._open[-1] += self._atom
        self.total += self._atom
        self._set_atom(size)

    def _set_atom(self, size: int) -> None:
        self._atom = size
        if self.total + size > SIZE_MAX:
            raise PatternTooLargeError(
                f"it stands for a pattern of more than {SIZE_MAX} characters"
            )

    def _repeat(self) -> None:
        """Multiply the last atom by the bounds of a repetition; other braces are literal."""
        end = self._text.find("}", self._at, self._at + 2 * _REPEAT_DIGITS_MAX + 2)
        least, _, most = self._text[self._at : max(end, 0)].partition(",")
        if end < 0 or not least.isdecimal() or not (most.isdecimal() or not most):
            self._begin_atom(1)
            return
        self._at = end + 1
        self._set_atom(self._atom * max(1, int(least), int(most or 0)) + 1)

    def _size_from(self, character: str) -> int:
        """Return the size of the atom that begins with this character, and skip the atom."""
        if character == "\\":
            return self._escape()
        return self._set() if character == "[" else 1

    def _escape(self) -> int:
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter == "Q":
            # Everything up to \E is literal.
            end = self._text.find("\\E", self._at)
            literal = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at += len(literal) + 2
            return len(literal)
        if letter not in _NAMED_ESCAPES:
            return 1
        is_long = self._text.startswith("{", self._at)
        self._at = max(self._at, self._text.find("}", self._at) if is_long else self._at) + 1
        return 1 if letter == "x" else _UNICODE_CLASS_SIZE

    def _set(self) -> int:
        """Skip a set, after its opening bracket."""
        if self._text.startswith("^", self._at):
            self._at += 1
        size, is_first = 1, True
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == "]" and not is_first:
                break
            is_first = False
            if character == "\\":
                size += self._escape()
            elif character == "[" and self._text.startswith(":", self._at):
                end = self._text.find(":]", self._at)
                self._at = end + 2 if end >= 0 else self._at
                size += 1
            else:
                self._note_nested_set(character)
                size += 1
        return size

    def _note_nested_set(self, character: str) -> None:
        if character == "[" or (character == "&" and self._text.startswith("&", self._at)):
            self.has_nested_sets = True
