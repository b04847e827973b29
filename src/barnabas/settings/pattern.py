"""Regular expressions from users, matched in time that is linear in the text.

Python's `re` backtracks: `(a+)+b` takes minutes on 40 letters, and some patterns raise
RecursionError or OverflowError. This module compiles a pattern into a Glushkov automaton. Each
character of the pattern is a position, and a set of positions is an integer bit mask that advances
with each character of the text. An automaton cannot match backreferences and assertions, so they
are refused, as in RE2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Larger patterns are refused. Both limits bound the work of one match.
PATTERN_CHARACTERS_MAX = 512
POSITIONS_MAX = 256
# Longer texts never match.
TEXT_CHARACTERS_MAX = 512
_DEPTH_MAX = 50
_REPEAT_MAX = 1000
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": lambda character: "0" <= character <= "9",
    "w": lambda character: character == "_" or (character.isascii() and character.isalnum()),
    "s": lambda character: character in " \t\n\x0b\f\r",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\x0b"}
_LINE_ENDS = "\n\r\x85\u2028\u2029"
_IGNORE_CASE = "(?i)"


class PatternError(ValueError):
    """Text that is not a regular expression, or that cannot be matched in linear time."""


class _Part(NamedTuple):
    """A part of a pattern: whether it matches the empty text, and its first and last positions."""

    is_nullable: bool
    first: int
    last: int


_NOTHING = _Part(True, 0, 0)


class Pattern:
    """A compiled pattern. Two patterns with the same text are equal."""

    __slots__ = ("_folds", "_follow", "_root", "_steps", "_tests", "text")

    def __init__(self, text: str) -> None:
        """Compile the pattern.

        Raises:
            PatternError: The text is not a pattern, or uses unsupported syntax.
        """
        self.text = text
        compiled = _Compiler(text)
        self._root = compiled.root
        self._follow = compiled.follow
        self._tests = compiled.tests
        self._folds = compiled.folds
        # Cache: character -> bit mask of the positions that match it.
        self._steps: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        if len(text) > TEXT_CHARACTERS_MAX:
            return False
        if not text:
            return self._root.is_nullable
        reachable, current = self._root.first, 0
        for character in text:
            current = reachable & self._positions_for(character)
            if not current:
                return False
            reachable = self._after(current)
        return bool(current & self._root.last)

    def _positions_for(self, character: str) -> int:
        known = self._steps.get(character)
        if known is None:
            folded = character.lower() if self._folds else character
            known = sum(1 << place for place, test in enumerate(self._tests) if test(folded))
            if len(self._steps) < TEXT_CHARACTERS_MAX:
                self._steps[character] = known
        return known

    def _after(self, positions: int) -> int:
        reachable = 0
        while positions:
            lowest = positions & -positions
            reachable |= self._follow[lowest.bit_length() - 1]
            positions ^= lowest
        return reachable


class _Compiler:
    """A parser that reads the pattern once and records which positions may follow each other."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError(f"it has more than {PATTERN_CHARACTERS_MAX} characters")
        self.folds = text.startswith(_IGNORE_CASE)
        self._text = text.removeprefix(_IGNORE_CASE)
        self._at = 0
        self._depth = 0
        # By position: the test for its character, and the bit mask of the positions that may
        # follow.
        self.tests: list[Callable[[str], bool]] = []
        self.follow: list[int] = []
        self.root = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("there is a ) without a (")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise PatternError("it ends too early")
        self._at += 1
        return character

    def _alternatives(self) -> _Part:
        made = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            made = _Part(
                made.is_nullable or other.is_nullable,
                made.first | other.first,
                made.last | other.last,
            )
        return made

    def _sequence(self) -> _Part:
        made = _NOTHING
        # A match always covers the whole text, so ^ and $ at the ends have no effect.
        if not self._depth and self._peek() == "^":
            self._at += 1
        while self._peek() not in ("", "|", ")"):
            if self._peek() == "$" and not self._depth:
                self._at += 1
                if self._peek() not in ("", "|"):
                    raise PatternError("$ is supported at the end only")
                break
            made = self._joined(made, self._repeated())
        return made

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._connect(left.last, right.first)
        return _Part(
            left.is_nullable and right.is_nullable,
            left.first | (right.first if left.is_nullable else 0),
            right.last | (left.last if right.is_nullable else 0),
        )

    def _connect(self, positions: int, first: int) -> None:
        while positions:
            lowest = positions & -positions
            self.follow[lowest.bit_length() - 1] |= first
            positions ^= lowest

    def _repeated(self) -> _Part:
        """Parse an atom and its quantifier; parse the atom again for each repetition."""
        start = self._at
        made = self._atom()
        bounds = self._quantifier()
        if bounds is None:
            return made
        end = self._at
        least, most = bounds
        if most == 0 or not made.first:
            # An empty atom repeated is empty. Expanding it could take exponential time when nested.
            return _NOTHING
        copies = [made]
        while len(copies) < max(1, least if most is None else most):
            self._at = start
            copies.append(self._atom())
        self._at = end
        whole = _NOTHING
        for place, copy in enumerate(copies):
            part = copy if place < least else copy._replace(is_nullable=True)
            if most is None and place == len(copies) - 1:
                self._connect(part.last, part.first)
            whole = self._joined(whole, part)
        return whole

    def _quantifier(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        character = self._peek()
        if character in simple:
            self._at += 1
            bounds = simple[character]
        elif character == "{":
            bounds = self._counted()
        else:
            return None
        if self._peek() == "?":
            # A lazy quantifier changes which match is found, but not whether the text matches.
            self._at += 1
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise PatternError("a repetition of a repetition is not supported")
        return bounds

    def _counted(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        self._at = end + 1
        lower = _count(least)
        upper = None if comma and not most else _count(most if comma else least)
        if upper is not None and upper < lower:
            raise PatternError("a repetition ends before it begins")
        return lower, upper

    def _atom(self) -> _Part:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._position(self._set())
        if character == ".":
            return self._position(lambda one: one not in _LINE_ENDS)
        if character == "\\":
            return self._position(self._escape())
        if character in "*+?{":
            raise PatternError(f"there is nothing for {character} to repeat")
        if character in "^$":
            raise PatternError(f"{character} is supported at the ends only")
        return self._position(self._literal(character))

    def _group(self) -> _Part:
        if self._peek() == "?":
            self._at += 1
            if self._next() != ":":
                raise PatternError("of groups with (?, only (?:...) is supported")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError(f"groups are nested more than {_DEPTH_MAX} levels deep")
        made = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise PatternError("there is a ( without a )")
        self._at += 1
        return made

    def _position(self, test: Callable[[str], bool]) -> _Part:
        if len(self.tests) >= POSITIONS_MAX:
            raise PatternError(f"it expands to more than {POSITIONS_MAX} characters")
        bit = 1 << len(self.tests)
        self.tests.append(test)
        self.follow.append(0)
        return _Part(False, bit, bit)

    def _literal(self, character: str) -> Callable[[str], bool]:
        return (character.lower() if self.folds else character).__eq__

    def _escape(self) -> Callable[[str], bool]:
        letter = self._next()
        found = _class_of(letter)
        return found if found is not None else self._literal(_escaped(letter))

    def _set(self) -> Callable[[str], bool]:
        """Parse a character set, after its opening bracket."""
        is_negated = self._peek() == "^"
        self._at += is_negated
        tests: list[Callable[[str], bool]] = []
        while True:
            character = self._next()
            if character == "]" and tests:
                break
            if character == "[" or (character == "&" and self._peek() == "&"):
                raise PatternError("sets within sets are not supported; write \\[ for a bracket")
            tests.append(self._member(character))
        return lambda one: any(test(one) for test in tests) != is_negated

    def _member(self, character: str) -> Callable[[str], bool]:
        if character == "\\":
            letter = self._next()
            found = _class_of(letter)
            if found is not None:
                return found
            character = _escaped(letter)
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return self._literal(character)
        self._at += 1
        last = self._next()
        last = _escaped(self._next()) if last == "\\" else last
        if last < character:
            raise PatternError(f"the range {character}-{last} ends before it begins")
        if self.folds:
            return lambda one: character <= one <= last or character <= one.upper() <= last
        return lambda one: character <= one <= last


def _class_of(letter: str) -> Callable[[str], bool] | None:
    found = _CLASSES.get(letter.lower())
    if found is None or letter.islower():
        return found
    return lambda one: not found(one)


def _escaped(letter: str) -> str:
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter.isascii() and letter.isalnum():
        raise PatternError(f"\\{letter} is not supported")
    return letter


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_REPEAT_MAX))):
        raise PatternError("a repetition is written {2}, {2,} or {2,5}")
    return int(text)
