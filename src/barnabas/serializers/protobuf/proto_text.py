"""A .proto text as `FileDescriptorProto`, from which the protobuf library makes message classes.

A registry stores the text; the library's compiler is a program of its own. This reads what decides
about the bytes and names of messages: messages, fields, oneofs, maps, enums, imports, and the
options packed, default, json_name, allow_alias and message_set_wire_format. Services, extensions
and other options are skipped. The descriptor pool resolves and checks names, numbers and types.
Source: the language specifications of proto2 and proto3. Editions and groups are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from barnabas.serializers.errors import SchemaError
from barnabas.serializers.protobuf.proto_tokens import TokenStream, unescape

if TYPE_CHECKING:
    from barnabas.serializers.protobuf.proto_tokens import Token

__all__ = ["UnsupportedProtoError", "parse_proto"]

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
