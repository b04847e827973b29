"""The tokens of a .proto text. Source: "Lexical Elements" of the specifications of the language."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.serializers.errors import SchemaError

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[{}\[\]()<>=;:,+\-/])
    """,
    re.VERBOSE | re.DOTALL,
)
# Limit for the tokens of a text: a megabyte of usual text has 150,000.
_TOKENS_MAX = 300_000
_ESCAPE = re.compile(
    rb"""\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))""",
    re.DOTALL,
)
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class Token(NamedTuple):
    """A token; `kind` is number, name, text, symbol or end."""

    kind: str
    # The characters; of a text the content between the quotes, still with its escapes.
    value: str
    line: int


class TokenStream:
    """The tokens of a text, read from the front.

    Raises:
        SchemaError: The text contains something else.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    @property
    def peek(self) -> str:
        """The characters of the next token; "" for a text and at the end."""
        token = self._tokens[self._next]
        return "" if token.kind == "text" else token.value

    @property
    def is_at_end(self) -> bool:
        """Whether no token remains."""
        return self._tokens[self._next].kind == "end"

    def take(self, *kinds: str) -> Token:
        """Return the next token, and move behind it.

        Raises:
            SchemaError: It has none of these kinds.
        """
        token = self._tokens[self._next]
        if token.kind == "end" or (kinds and token.kind not in kinds):
            raise self.error(f"{' or '.join(kinds) or 'more text'} expected")
        self._next += 1
        return token

    def accept(self, value: str) -> bool:
        """Move behind the next token if it is this name or symbol; return whether it is."""
        found = self.peek == value
        self._next += found
        return found

    def expect(self, value: str) -> None:
        """Move behind a symbol.

        Raises:
            SchemaError: The next token is another one.
        """
        if not self.accept(value):
            raise self.error(f"{value} expected")

    def text(self) -> str:
        """Return the content of the next texts, which are one if they are adjacent."""
        parts = [self.take("text").value]
        while self._tokens[self._next].kind == "text":
            parts.append(self.take().value)
        return "".join(parts)

    def error(self, message: str) -> SchemaError:
        """Return the error of the next token."""
        token = self._tokens[self._next]
        found = repr(token.value[:40]) if token.kind != "end" else "the end"
        return SchemaError(f"line {token.line} of the .proto text: {message}, not {found}")


def unescape(text: str) -> str:
    """Return a text without its escapes."""
    return _ESCAPE.sub(_unescaped, text.encode()).decode(errors="replace")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, simple = match.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    code = short or long
    if code is not None:
        return chr(min(int(code, 16), 0x10FFFF)).encode(errors="replace")
    return _SIMPLE.get(simple, simple)


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            shown = text[position : position + 20]
            raise SchemaError(f"line {line} of the .proto text: {shown!r} is not part of a schema")
        kind, value = str(match.lastgroup), match.group()
        if kind != "blank":
            if len(found) == _TOKENS_MAX:
                raise SchemaError(f"the .proto text has more than {_TOKENS_MAX} tokens")
            found.append(Token(kind, value[1:-1] if kind == "text" else value, line))
        line += value.count("\n")
        position = match.end()
    found.append(Token("end", "", line))
    return found
