"""A .proto text as `FileDescriptorProto`, from which the protobuf library makes message classes.

A registry stores the text; the library's compiler is a program of its own. This module reads the
parts that determine the bytes and names of messages: messages, fields, oneofs, maps, enums,
imports, and the options packed, default, json_name, allow_alias and message_set_wire_format.
Services, extensions and other options are skipped. The descriptor pool resolves and checks names,
numbers and types. Editions and groups are refused.

Sources: the language specifications of proto2 and proto3; tokens: their "Lexical Elements".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

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
_OPENING = {"{": "}", "[": "]", "(": ")", "<": ">"}
# Limit for messages within messages; the compiler has a similar one.
_DEPTH_MAX = 32
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_FLOATS = (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT)
_SKIPPED_IN_MESSAGES = ("option", "reserved", "extensions", "extend")


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

    def skip_statement(self) -> None:
        """Move behind the next semicolon, or behind the block that stands before it."""
        closing: list[str] = []
        while True:
            token = self.take()
            if token.kind != "symbol":
                continue
            if token.value in "{[(":
                closing.append(_OPENING[token.value])
            elif closing and token.value == closing[-1]:
                closing.pop()
                if not closing and token.value == "}":
                    self.accept(";")
                    return
            elif token.value == ";" and not closing:
                return

    def skip_value(self) -> None:
        """Move behind the value of an option within brackets."""
        closing: list[str] = []
        while closing or self.peek not in (",", "]"):
            token = self.take()
            if token.kind == "symbol" and token.value in "{[(":
                closing.append(_OPENING[token.value])
            elif closing and token.value == closing[-1] and token.kind == "symbol":
                closing.pop()

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
            found.append(Token(kind, value[1:-1] if kind == "text" else value, line))
        line += value.count("\n")
        position = match.end()
    found.append(Token("end", "", line))
    return found


class UnsupportedProtoError(SchemaError):
    """The text has a part of the language that this parser does not read."""


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """Return the descriptor of a file.

    Args:
        text: The content of the file.
        name: Its name, by which other files import it.

    Raises:
        SchemaError: The text is invalid.
        UnsupportedProtoError: It uses an edition or a group.
    """
    return _Parser(text, name).parse()


class _Parser:
    """Reads one file."""

    def __init__(self, text: str, name: str) -> None:
        self._tokens = TokenStream(text)
        self._file = FileDescriptorProto(name=name)

    @property
    def _is_proto3(self) -> bool:
        return bool(self._file.syntax == "proto3")

    def parse(self) -> FileDescriptorProto:
        """Read all statements of the file."""
        tokens, file = self._tokens, self._file
        while not tokens.is_at_end:
            match tokens.peek:
                case "syntax":
                    self._syntax()
                case "edition":
                    raise UnsupportedProtoError(
                        "editions of .proto texts are not supported: use the generated message "
                        "class, or a schema with proto3"
                    )
                case "package":
                    tokens.take()
                    file.package = tokens.take("name").value
                    tokens.expect(";")
                case "import":
                    self._import()
                case "message":
                    tokens.take()
                    self._message(file.message_type.add(), 1)
                case "enum":
                    tokens.take()
                    self._enum(file.enum_type.add())
                case "option" | "service" | "extend":
                    tokens.skip_statement()
                case ";":
                    tokens.take()
                case _:
                    raise tokens.error("a definition expected")
        return file

    def _syntax(self) -> None:
        tokens = self._tokens
        tokens.take()
        tokens.expect("=")
        syntax = tokens.text()
        if syntax not in ("proto2", "proto3"):
            raise SchemaError(f"the syntax {syntax[:40]!r} of the .proto text is unknown")
        # "proto2" is the default, which descriptors omit.
        self._file.syntax = "proto3" if syntax == "proto3" else ""
        tokens.expect(";")

    def _import(self) -> None:
        tokens = self._tokens
        tokens.take()
        kind = tokens.take("name").value if tokens.peek in ("public", "weak") else ""
        if kind == "public":
            self._file.public_dependency.append(len(self._file.dependency))
        self._file.dependency.append(tokens.text())
        tokens.expect(";")

    def _message(self, message: DescriptorProto, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise SchemaError(f"messages of the .proto text are nested over {_DEPTH_MAX} deep")
        tokens = self._tokens
        message.name = tokens.take("name").value
        tokens.expect("{")
        optional: list[FieldDescriptorProto] = []
        while not tokens.accept("}"):
            word = tokens.peek
            if word == "message":
                tokens.take()
                self._message(message.nested_type.add(), depth + 1)
            elif word == "enum":
                tokens.take()
                self._enum(message.enum_type.add())
            elif word == "oneof":
                self._oneof(message)
            elif word == "option":
                self._message_option(message)
            elif word in _SKIPPED_IN_MESSAGES:
                tokens.skip_statement()
            elif not tokens.accept(";"):
                field = self._field(message)
                if field.proto3_optional:
                    optional.append(field)
        # Such a field has a oneof of its own; these stand behind the others.
        for field in optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _message_option(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        if tokens.peek == "message_set_wire_format":
            tokens.take()
            tokens.expect("=")
            message.options.message_set_wire_format = tokens.peek == "true"
        tokens.skip_statement()

    def _oneof(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=tokens.take("name").value)
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek == "option":
                tokens.skip_statement()
            elif not tokens.accept(";"):
                self._field(message, is_in_oneof=True).oneof_index = index

    def _field(
        self, message: DescriptorProto, *, is_in_oneof: bool = False
    ) -> FieldDescriptorProto:
        tokens = self._tokens
        field = message.field.add()
        word = tokens.take("name")
        label = None if is_in_oneof else _LABELS.get(word.value)
        if label is not None:
            word = tokens.take("name")
        field.label = label or FieldDescriptorProto.LABEL_OPTIONAL
        field.proto3_optional = label == FieldDescriptorProto.LABEL_OPTIONAL and self._is_proto3
        if word.value == "group":
            raise UnsupportedProtoError(
                "groups of .proto texts are not supported: use the generated message class"
            )
        if word.value == "map" and tokens.accept("<"):
            key = tokens.take("name")
            tokens.expect(",")
            value = tokens.take("name")
            tokens.expect(">")
            field.name = tokens.take("name").value
            field.label = FieldDescriptorProto.LABEL_REPEATED
            entry = _map_entry(message, field.name, key, value)
            field.type_name = entry.name
        else:
            _set_type(field, word)
            field.name = tokens.take("name").value
        tokens.expect("=")
        field.number = self._integer(1, (1 << 29) - 1)
        if tokens.accept("["):
            self._field_options(field)
        tokens.expect(";")
        return field

    def _field_options(self, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        while True:
            token = tokens.take("name", "symbol")
            if token.value == "(":
                # A custom option such as (buf.validate).required.
                while tokens.peek != "=":
                    tokens.take()
            tokens.expect("=")
            match token.value:
                case "default":
                    field.default_value = self._default(field)
                case "packed":
                    field.options.packed = tokens.take("name").value == "true"
                case "json_name":
                    field.json_name = unescape(tokens.text())
                case _:
                    tokens.skip_value()
            if not tokens.accept(","):
                tokens.expect("]")
                return

    def _default(self, field: FieldDescriptorProto) -> str:
        """Return a default value in the form of descriptors."""
        tokens = self._tokens
        if field.type == FieldDescriptorProto.TYPE_BYTES:
            return tokens.text()
        if field.type == FieldDescriptorProto.TYPE_STRING:
            return unescape(tokens.text())
        sign = "-" if tokens.accept("-") else ""
        token = tokens.take("name", "number")
        if token.kind == "number":
            if field.type in _FLOATS:
                return sign + f"{float(token.value.rstrip('fF')):.17g}"
            return sign + str(_whole(token))
        return sign + token.value

    def _enum(self, enum: EnumDescriptorProto) -> None:
        tokens = self._tokens
        enum.name = tokens.take("name").value
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek == "option":
                tokens.take()
                if tokens.peek == "allow_alias":
                    tokens.take()
                    tokens.expect("=")
                    enum.options.allow_alias = tokens.peek == "true"
                tokens.skip_statement()
            elif tokens.peek == "reserved":
                tokens.skip_statement()
            elif not tokens.accept(";"):
                name = tokens.take("name").value
                tokens.expect("=")
                enum.value.add(name=name, number=self._integer(-(1 << 31), (1 << 31) - 1))
                if tokens.peek == "[":
                    tokens.skip_statement()
                else:
                    tokens.expect(";")

    def _integer(self, least: int, most: int) -> int:
        sign = -1 if self._tokens.accept("-") else 1
        token = self._tokens.take("number")
        number = sign * _whole(token)
        if not least <= number <= most:
            raise SchemaError(f"line {token.line} of the .proto text: {number} is out of range")
        return number


def _whole(token: Token) -> int:
    value = token.value.lower()
    try:
        if value.startswith("0x"):
            return int(value, 16)
        return int(value, 8 if value.startswith("0") and len(value) > 1 else 10)
    except ValueError:
        raise SchemaError(
            f"line {token.line} of the .proto text: {token.value[:40]} is not an integer"
        ) from None


def _set_type(field: FieldDescriptorProto, word: Token) -> None:
    """Set a scalar type, or the name of a message or an enum, which the pool resolves."""
    scalar = _SCALARS.get(word.value)
    if scalar is None:
        field.type_name = word.value
    else:
        field.type = scalar


def _map_entry(message: DescriptorProto, name: str, key: Token, value: Token) -> DescriptorProto:
    """Add the message of an entry of a map, as the compiler does."""
    entry = message.nested_type.add()
    entry.name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
    entry.options.map_entry = True
    for number, (field_name, word) in enumerate((("key", key), ("value", value)), 1):
        field = entry.field.add(
            name=field_name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
        _set_type(field, word)
    return entry
