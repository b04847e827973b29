"""A .proto text as `FileDescriptorProto`, from which the protobuf library makes message classes.

A registry stores the text; the library's compiler is a program of its own. The descriptor has all
that the text says, besides comments. Options are there as the text has them, in
`uninterpreted_option`; packed, default, json_name, allow_alias and message_set_wire_format are set,
too, because they determine the bytes and names of messages. The descriptor pool resolves and checks
names, numbers and types. Editions and groups are refused.

Source: the language specifications of proto2 and proto3.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_options import read_option, read_options, read_setting
from barnabas.serializers.proto_tokens import Token, TokenStream, unescape

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
# The number behind the last one of a message, and the last one of an enum.
_NUMBER_END = 1 << 29
_ENUM_MAX = (1 << 31) - 1


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
        if tokens.peek == "syntax":
            self._syntax()
        while not tokens.is_at_end:
            match tokens.peek:
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
                case "service":
                    self._service()
                case "extend":
                    self._extend(file)
                case "option":
                    read_option(tokens, file.options)
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
        self._file.syntax = syntax
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
            match tokens.peek:
                case "message":
                    tokens.take()
                    self._message(message.nested_type.add(), depth + 1)
                case "enum":
                    tokens.take()
                    self._enum(message.enum_type.add())
                case "oneof":
                    self._oneof(message)
                case "option":
                    read_option(tokens, message.options)
                case "reserved":
                    self._reserved(message, _NUMBER_END - 1, 1)
                case "extensions":
                    self._extensions(message)
                case "extend":
                    self._extend(message)
                case ";":
                    tokens.take()
                case _:
                    field = self._field(message, message.field.add())
                    if field.proto3_optional:
                        optional.append(field)
        # Such a field has a oneof of its own; these stand behind the others.
        for field in optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=tokens.take("name").value)
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek == "option":
                read_option(tokens, oneof.options)
            elif not tokens.accept(";"):
                field = self._field(message, message.field.add(), is_in_oneof=True)
                field.oneof_index = index

    def _reserved(
        self, target: DescriptorProto | EnumDescriptorProto, most: int, behind: int
    ) -> None:
        """Read reserved names, or ranges of numbers.

        Args:
            target: The message or the enum.
            most: The number for which `max` stands.
            behind: What is added to the last number of a range: 1 if its end is excluded.
        """
        tokens = self._tokens
        tokens.take()
        while True:
            if tokens.peek == "":
                target.reserved_name.append(tokens.text())
            else:
                start, end = self._range(most)
                target.reserved_range.add(start=start, end=end + behind)
            if not tokens.accept(","):
                break
        tokens.expect(";")

    def _range(self, most: int) -> tuple[int, int]:
        """Return the first and the last number of a range."""
        tokens = self._tokens
        start = self._integer(-_ENUM_MAX - 1, _ENUM_MAX)
        if not tokens.accept("to"):
            return start, start
        return start, most if tokens.accept("max") else self._integer(-_ENUM_MAX - 1, _ENUM_MAX)

    def _extensions(self, message: DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        ranges = []
        while True:
            start, end = self._range(_NUMBER_END - 1)
            ranges.append(message.extension_range.add(start=start, end=end + 1))
            if not tokens.accept(","):
                break
        if tokens.accept("["):
            read_options(tokens, ranges[-1].options)
        tokens.expect(";")

    def _extend(self, scope: FileDescriptorProto | DescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        extendee = tokens.take("name").value
        tokens.expect("{")
        while not tokens.accept("}"):
            if not tokens.accept(";"):
                # The entry of a map would be a message within the extended one.
                self._field(None, scope.extension.add(extendee=extendee))

    def _service(self) -> None:
        tokens = self._tokens
        tokens.take()
        service = self._file.service.add(name=tokens.take("name").value)
        tokens.expect("{")
        while not tokens.accept("}"):
            if tokens.peek == "option":
                read_option(tokens, service.options)
            elif not tokens.accept(";"):
                tokens.expect("rpc")
                method = service.method.add(name=tokens.take("name").value)
                method.client_streaming, method.input_type = self._method_type()
                tokens.expect("returns")
                method.server_streaming, method.output_type = self._method_type()
                if tokens.accept("{"):
                    while not tokens.accept("}"):
                        if not tokens.accept(";"):
                            read_option(tokens, method.options)
                else:
                    tokens.expect(";")

    def _method_type(self) -> tuple[bool, str]:
        """Return whether messages are streamed, and their type."""
        tokens = self._tokens
        tokens.expect("(")
        word = tokens.take("name").value
        is_streaming = word == "stream" and tokens.peek != ")"
        if is_streaming:
            word = tokens.take("name").value
        tokens.expect(")")
        return is_streaming, word

    def _field(
        self,
        message: DescriptorProto | None,
        field: FieldDescriptorProto,
        *,
        is_in_oneof: bool = False,
    ) -> FieldDescriptorProto:
        tokens = self._tokens
        word = tokens.take("name")
        label = None if is_in_oneof else _LABELS.get(word.value)
        if label is not None:
            word = tokens.take("name")
        field.label = label or FieldDescriptorProto.LABEL_OPTIONAL
        field.proto3_optional = label == FieldDescriptorProto.LABEL_OPTIONAL and (
            self._is_proto3 and message is not None
        )
        is_labelled = label is not None or is_in_oneof or word.value == "map"
        if not is_labelled and not self._is_proto3:
            raise SchemaError(
                f"line {word.line} of the .proto text: a field of proto2 needs a label: optional, "
                f"required or repeated"
            )
        if word.value == "group":
            raise UnsupportedProtoError(
                "groups of .proto texts are not supported: use the generated message class"
            )
        if word.value == "map" and message is not None and tokens.accept("<"):
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
        field.number = self._integer(1, _NUMBER_END - 1)
        if tokens.accept("["):
            self._field_options(field)
        tokens.expect(";")
        return field

    def _field_options(self, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        while True:
            if tokens.accept("default"):
                tokens.expect("=")
                field.default_value = self._default(field)
            elif tokens.accept("json_name"):
                tokens.expect("=")
                field.json_name = unescape(tokens.text())
            else:
                read_setting(tokens, field.options)
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
                read_option(tokens, enum.options)
            elif tokens.peek == "reserved":
                self._reserved(enum, _ENUM_MAX, 0)
            elif not tokens.accept(";"):
                value = enum.value.add(name=tokens.take("name").value)
                tokens.expect("=")
                value.number = self._integer(-_ENUM_MAX - 1, _ENUM_MAX)
                if tokens.accept("["):
                    read_options(tokens, value.options)
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
