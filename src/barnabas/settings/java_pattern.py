r"""Translates regular expressions of Java's syntax, for texts of ASCII characters.

Names of topics are such texts. The result is a pattern of Python's `re` with the same matches. What
has no exact translation is refused by its name, so that no pattern matches less than in Java
without notice. Java's syntax is that of `java.util.regex.Pattern`.

Sets are computed: `[a-z&&[^b]]` and `\p{Alpha}` become the ASCII characters that they contain.
"""

from __future__ import annotations

import re
import unicodedata

from barnabas.settings.pattern import CHARACTERS_MAX, PatternError, PatternTooLargeError

_ASCII = frozenset(map(chr, range(128)))
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER = frozenset(character.upper() for character in _LOWER)
_DIGITS = frozenset("0123456789")
_GRAPHIC = frozenset(map(chr, range(0x21, 0x7F)))
_SPACE = frozenset(" \t\n\v\f\r")
_CONTROL = _ASCII - _GRAPHIC - {" "}
# The classes of POSIX and of java.lang.Character, by the name in \p{...}.
_NAMED_SETS = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": _ASCII, "Alpha": _LOWER | _UPPER,
    "Digit": _DIGITS, "Alnum": _LOWER | _UPPER | _DIGITS,
    "Punct": _GRAPHIC - _LOWER - _UPPER - _DIGITS, "Graph": _GRAPHIC, "Print": _GRAPHIC | {" "},
    "Blank": frozenset(" \t"), "Cntrl": _CONTROL, "XDigit": _DIGITS | frozenset("abcdefABCDEF"),
    "Space": _SPACE, "javaLowerCase": _LOWER, "javaUpperCase": _UPPER,
    "IsAlphabetic": _LOWER | _UPPER, "IsLetter": _LOWER | _UPPER, "IsDigit": _DIGITS,
    "IsLowercase": _LOWER, "IsUppercase": _UPPER, "IsLatin": _LOWER | _UPPER,
}  # fmt: skip
_ESCAPED_SETS = {"d": _DIGITS, "s": _SPACE, "w": _LOWER | _UPPER | _DIGITS | {"_"}}
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CODES = (
    re.compile(r"x([0-9A-Fa-f]{2})"),
    re.compile(r"x\{([0-9A-Fa-f]{1,6})\}"),
    re.compile(r"u([0-9A-Fa-f]{4})"),
)
_OCTAL_CODE = re.compile(r"0([0-3]?[0-7]{1,2})")
_PROPERTY = re.compile(r"([pP])(?:\{([^{}]*)\}|([A-Z]))")
_GROUP_NAME = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_FLAGS = re.compile(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
# Java's flags without effect on texts of one line are left out: d, m and s.
_FLAGS_WITHOUT_EFFECT = "dms"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_GROUP_STARTS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of Java's syntax; `search` on the result is Java's `find`.

    Raises:
        PatternError: the text is not a pattern of Java, or a part of it has no exact translation.
    """
    if len(text) > CHARACTERS_MAX:
        raise PatternTooLargeError(f"it has more than {CHARACTERS_MAX} characters")
    translated = _Translation(_without_quotes(text)).translated()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(str(error)) from None


def _without_quotes(text: str) -> str:
    r"""Return the pattern with the characters between \Q and \E escaped one by one."""
    parts = []
    at = 0
    while at < len(text):
        if not text.startswith("\\Q", at):
            size = 2 if text[at] == "\\" else 1
            parts.append(text[at : at + size])
            at += size
            continue
        end = text.find("\\E", at)
        end = len(text) if end < 0 else end
        parts += [_escaped(character) for character in text[at + 2 : end]]
        at = end + 2
    return "".join(parts)


def _escaped(character: str) -> str:
    is_letter = character in _LOWER or character in _UPPER or character not in _ASCII
    return character if is_letter else f"\\x{ord(character):02x}"


class _Translation:
    """One pass over a pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # Whether letters match in both cases, in the whole pattern and in each open group.
        self._ignores_case = [False]
        self._groups = 0

    def translated(self) -> str:
        """Return the pattern in Python's syntax.

        Raises:
            PatternError: a part has no translation.
        """
        parts = []
        while self._at < len(self._text):
            parts.append(self._part())
        if len(self._ignores_case) > 1:
            raise PatternError("a group is not closed")
        return "".join(parts)

    def _part(self) -> str:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        if character == "[":
            self._at += 1
            return self._class_of(self._set())
        if character == "\\":
            return self._escape()
        if character in "*+?{":
            return self._quantifier()
        self._at += 1
        if character == ")":
            if len(self._ignores_case) == 1:
                raise PatternError("a closing parenthesis has no opening one")
            self._ignores_case.pop()
            return ")"
        return character if character in "|.^$" else re.escape(character)

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            raise PatternError("a brace begins no repetition such as {2} or {2,5}")
        self._at = found.end()
        return found[0]

    def _group(self) -> str:
        for start in _GROUP_STARTS:
            if self._text.startswith(start, self._at):
                self._at += len(start)
                return self._opened(start)
        if not self._text.startswith("(?", self._at):
            self._at += 1
            self._groups += 1
            return self._opened("(")
        name = _GROUP_NAME.match(self._text, self._at + 2)
        if name is not None:
            self._at = name.end()
            self._groups += 1
            return self._opened(f"(?P<{name[1]}>")
        return self._flags()

    def _opened(self, start: str) -> str:
        self._ignores_case.append(self._ignores_case[-1])
        return start

    def _flags(self) -> str:
        """Translate `(?i)` at the start of the pattern, and `(?i:`, `(?-i:` anywhere."""
        found = _FLAGS.match(self._text, self._at + 2)
        shown = self._text[self._at : found.end() if found else self._at + 3]
        if found is None:
            raise PatternError(f"{shown} begins no group of Java")
        for flag in found[1] + (found[2] or ""):
            if flag not in _FLAGS_WITHOUT_EFFECT and flag != "i":
                raise PatternError(f"{shown}: the flag {flag} is not supported")
        is_whole_group = found[3] == ":"
        if not is_whole_group and self._at > 0:
            raise PatternError(f"{shown} is supported at the start only; use (?i:...) elsewhere")
        ignores = self._ignores_case[-1]
        if "i" in found[1]:
            ignores = True
        if "i" in (found[2] or ""):
            ignores = False
        self._at = found.end()
        if is_whole_group:
            self._ignores_case.append(ignores)
            return "(?i:" if ignores else "(?-i:"
        self._ignores_case[-1] = ignores
        return "(?i)" if ignores else ""

    # Escapes

    def _escape(self) -> str:
        start = self._at
        found = self._escaped_set()
        if found is not None:
            return self._class_of(found)
        character = self._escaped_character()
        if character is not None:
            return re.escape(character)
        letter = self._text[start + 1]
        self._at = start + 2
        if letter in "bBA":
            return f"\\{letter}"
        if letter in "zZ":
            # Texts have no line terminator, so Java's \Z is the end too.
            return r"\Z"
        name = _GROUP_NAME.match(self._text, self._at) if letter == "k" else None
        if name is not None:
            self._at = name.end()
            return f"(?P={name[1]})"
        if letter in _DIGITS:
            return self._reference(int(letter))
        raise PatternError(f"\\{letter} is not supported")

    def _reference(self, number: int) -> str:
        """Translate a reference; more digits belong to it while there are that many groups."""
        while self._at < len(self._text) and self._text[self._at] in _DIGITS:
            longer = number * 10 + int(self._text[self._at])
            if longer > self._groups:
                break
            number = longer
            self._at += 1
        return f"(?:\\{number})"

    def _escaped_set(self) -> frozenset[str] | None:
        """Return the characters of the escape at this place, and skip it; None without a set."""
        letter = self._text[self._at + 1 : self._at + 2]
        if letter.lower() in _ESCAPED_SETS:
            self._at += 2
            found = _ESCAPED_SETS[letter.lower()]
            return found if letter.islower() else _ASCII - found
        if not letter or letter not in "pP":
            return None
        prop = _PROPERTY.match(self._text, self._at + 1)
        if prop is None:
            raise PatternError(f"\\{letter} is not followed by a name in braces")
        name = prop[2] if prop[3] is None else prop[3]
        found = _property(name)
        if self._ignores_case[-1] and found & _LOWER != {c.lower() for c in found & _UPPER}:
            raise PatternError(f"\\{prop[0]} is not supported where case is ignored")
        self._at = prop.end()
        return found if letter == "p" else _ASCII - found

    def _escaped_character(self) -> str | None:
        """Return the character of the escape at this place, and skip it; None if it is none."""
        letter = self._text[self._at + 1 : self._at + 2]
        if not letter:
            raise PatternError("it ends with a backslash")
        octal = _OCTAL_CODE.match(self._text, self._at + 1)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal[1], 8))
        for kind in _CODES:
            code = kind.match(self._text, self._at + 1)
            if code is not None:
                self._at = code.end()
                return _character(int(code[1], 16))
        if letter in _ESCAPED_CHARACTERS or not (letter.isascii() and letter.isalnum()):
            self._at += 2
            return _ESCAPED_CHARACTERS.get(letter, letter)
        return None

    # Sets

    def _set(self) -> frozenset[str]:
        """Return the characters of the set whose opening bracket was just read, and skip it."""
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        result: frozenset[str] | None = None
        is_compound = False
        while True:
            operand, has_nested_set = self._union(is_first=result is None)
            result = operand if result is None else result & operand
            is_intersection = self._text.startswith("&&", self._at)
            is_compound = is_compound or has_nested_set or is_intersection
            if not is_intersection:
                break
            self._at += 2
        self._at += 1
        if is_negated and is_compound:
            raise PatternError(
                "[^...] around another set or && differs between versions of Java; "
                "negate the inner sets"
            )
        return _ASCII - result if is_negated else result

    def _union(self, *, is_first: bool) -> tuple[frozenset[str], bool]:
        """Return the characters up to `]` or `&&`, and whether there is a set among them."""
        found: set[str] = set()
        is_empty, has_nested_set = True, False
        while self._at < len(self._text):
            character = self._text[self._at]
            if self._text.startswith("&&", self._at) or (
                character == "]" and not (is_first and is_empty)
            ):
                if is_empty:
                    raise PatternError("a set has an empty side of &&")
                return frozenset(found), has_nested_set
            is_empty = False
            if character == "[":
                self._at += 1
                has_nested_set = True
                found |= self._set()
            else:
                found |= self._range()
        raise PatternError("a set is not closed")

    def _range(self) -> frozenset[str]:
        """Return the characters of a range such as `a-z`, of an escape, or of one character."""
        if self._text[self._at] == "\\":
            found = self._escaped_set()
            if found is not None:
                return found
        low = high = self._set_character()
        following = self._text[self._at + 1 : self._at + 2]
        if self._text.startswith("-", self._at) and following not in ("", "]", "["):
            if self._text.startswith("-&&", self._at):
                return self._both_cases({low})
            self._at += 1
            high = self._set_character()
        if high < low:
            raise PatternError(f"the range {low}-{high} is reversed")
        return self._both_cases({c for c in _ASCII if low <= c <= high})

    def _set_character(self) -> str:
        character = self._text[self._at]
        if character != "\\":
            self._at += 1
            return character
        found = self._escaped_character()
        if found is None:
            raise PatternError(f"\\{self._text[self._at + 1]} is not supported in a set")
        return found

    def _both_cases(self, characters: set[str]) -> frozenset[str]:
        if not self._ignores_case[-1]:
            return frozenset(characters) & _ASCII
        return frozenset(c for one in characters for c in (one.lower(), one.upper())) & _ASCII

    @staticmethod
    def _class_of(characters: frozenset[str]) -> str:
        """Return a class of these characters; one that never matches if there are none."""
        if not characters:
            return "(?!)"
        return f"[{''.join(re.escape(c) for c in sorted(characters))}]"


def _property(name: str) -> frozenset[str]:
    r"""Return the ASCII characters of \p{name}.

    Raises:
        PatternError: the name is not known here.
    """
    if name in _NAMED_SETS:
        return _NAMED_SETS[name]
    category = name
    for prefix in ("Is", "gc=", "general_category="):
        category = category.removeprefix(prefix)
    found = frozenset(c for c in _ASCII if unicodedata.category(c).startswith(category))
    # L, N, P, S, Z and C, or two letters such as Lu. Others are blocks, scripts and Java's methods.
    if re.fullmatch(r"[LMNPSZC][a-z]?", category) and found:
        return found
    raise PatternError(f"\\p{{{name}}} is not supported")


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise PatternError(f"there is no character {code:#x}")
    return chr(code)
