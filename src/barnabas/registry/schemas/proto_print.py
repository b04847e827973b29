"""The text of a Protobuf schema, written from its descriptor in one way.

Confluent's registry stores .proto files without comments, in this order: syntax, package, imports,
options, messages, enums, extensions, services. Within a message: reserved numbers and names,
options, fields, oneofs, extension ranges, messages, enums. The normalized text has the full names
of types, and what has no order is sorted. The order of messages is kept, because records name a
message by its index.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from barnabas.serializers.proto_options import aggregate_text, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        EnumValueDescriptorProto,
        MethodDescriptorProto,
        OneofDescriptorProto,
        ServiceDescriptorProto,
        UninterpretedOption,
    )

_NUMBER_MAX = (1 << 29) - 1
_ENUM_MAX = (1 << 31) - 1
_LABELS = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_QUOTED_DEFAULTS = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)


def proto_text(file: FileDescriptorProto, is_normalized: bool = False) -> str:
    """Return the text of a file.

    Args:
        file: The descriptor.
        is_normalized: Whether what has no order is sorted.
    """
    return "\n".join(_Printer(file, is_normalized).lines()) + "\n"


def descriptor_text(file: FileDescriptorProto) -> str:
    """Return the descriptor of a file in base64, without the options that are not interpreted."""
    plain = FileDescriptorProto.FromString(file.SerializeToString())
    _clear_options(plain)
    return base64.b64encode(plain.SerializeToString()).decode()


def _clear_options(message: Any) -> None:
    """Remove the options that are not interpreted from a message and those within it."""
    for field, value in message.ListFields():
        if field.name == "uninterpreted_option":
            message.ClearField(field.name)
        elif field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                _clear_options(each)


class _Printer:
    def __init__(self, file: FileDescriptorProto, is_normalized: bool) -> None:
        self._file = file
        self._is_normalized = is_normalized

    def lines(self) -> list[str]:
        file = self._file
        head = []
        if file.syntax:
            head.append(f'syntax = "{file.syntax}";')
        if file.package:
            head.append(f"package {file.package};")
        public = [file.dependency[index] for index in file.public_dependency]
        imports = [name for name in file.dependency if name not in set(public)]
        if self._is_normalized:
            imports, public = sorted(set(imports)), sorted(set(public))
        types = [line for each in file.message_type for line in self._message(each)]
        types += [line for each in file.enum_type for line in self._enum(each)]
        sections = [
            head,
            [
                *(f"import {quoted(name)};" for name in imports),
                *(f"import public {quoted(name)};" for name in public),
            ],
            self._option_lines(file.options),
            types,
            self._extensions(file.extension),
            [line for each in file.service for line in self._service(each)],
        ]
        return _joined(sections)

    def _message(self, message: DescriptorProto) -> list[str]:
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        fields = [each for each in message.field if _is_plain(each)]
        if self._is_normalized:
            fields.sort(key=lambda each: each.number)
        nested = [
            line
            for each in message.nested_type
            if not each.options.map_entry
            for line in self._message(each)
        ]
        nested += [line for each in message.enum_type for line in self._enum(each)]
        return _block(
            f"message {message.name}",
            self._reserved(message, _NUMBER_MAX, 1),
            self._option_lines(message.options),
            [line for each in fields for line in self._field(each, entries)],
            self._oneofs(message),
            self._ranges(message),
            self._extensions(message.extension),
            nested,
        )

    def _oneofs(self, message: DescriptorProto) -> list[str]:
        found: list[tuple[int, list[str]]] = []
        for index, oneof in enumerate(message.oneof_decl):
            fields = [
                each for each in message.field if not _is_plain(each) and each.oneof_index == index
            ]
            if self._is_normalized:
                fields.sort(key=lambda each: each.number)
            if fields:
                found.append((fields[0].number, self._oneof(oneof, fields)))
        if self._is_normalized:
            found.sort(key=lambda each: each[0])
        return [line for _, lines in found for line in lines]

    def _oneof(
        self, oneof: OneofDescriptorProto, fields: Sequence[FieldDescriptorProto]
    ) -> list[str]:
        lines = [line for each in fields for line in self._field(each, {})]
        return _block(f"oneof {oneof.name}", self._option_lines(oneof.options), lines)

    def _field(self, field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> list[str]:
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = (_type(each) for each in entry.field)
            head = f"map<{key}, {value}>"
        else:
            head = self._label(field) + _type(field)
        settings = self._settings(field.options)
        if field.HasField("default_value"):
            is_quoted = field.type in _QUOTED_DEFAULTS
            value = quoted(field.default_value) if is_quoted else field.default_value
            settings.append(("default", value))
        if field.json_name and field.json_name != _json_name(field.name):
            settings.append(("json_name", quoted(field.json_name)))
        return self._statement(f"{head} {field.name} = {field.number}", settings)

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.HasField("oneof_index") and not field.proto3_optional:
            return ""
        is_optional = field.label == FieldDescriptorProto.LABEL_OPTIONAL
        if is_optional and self._file.syntax == "proto3" and not field.proto3_optional:
            return ""
        return _LABELS[field.label]

    def _enum(self, enum: EnumDescriptorProto) -> list[str]:
        values: list[EnumValueDescriptorProto] = list(enum.value)
        if self._is_normalized:
            values.sort(key=lambda each: (each.number, each.name))
        lines = [
            line
            for each in values
            for line in self._statement(
                f"{each.name} = {each.number}", self._settings(each.options)
            )
        ]
        head = self._reserved(enum, _ENUM_MAX, 0) + self._option_lines(enum.options)
        return _block(f"enum {enum.name}", head + lines)

    def _service(self, service: ServiceDescriptorProto) -> list[str]:
        methods = [line for each in service.method for line in self._method(each)]
        return _block(f"service {service.name}", self._option_lines(service.options), methods)

    def _method(self, method: MethodDescriptorProto) -> list[str]:
        request = "stream " * method.client_streaming + method.input_type
        response = "stream " * method.server_streaming + method.output_type
        head = f"rpc {method.name} ({request}) returns ({response})"
        options = self._option_lines(method.options)
        if not options:
            return [f"{head};"]
        *lines, last = _block(head, options)
        return [*lines, f"{last};"]

    def _extensions(self, fields: Iterable[FieldDescriptorProto]) -> list[str]:
        grouped: dict[str, list[str]] = {}
        for field in fields:
            grouped.setdefault(field.extendee, []).extend(self._field(field, {}))
        return [line for name, each in grouped.items() for line in _block(f"extend {name}", each)]

    def _ranges(self, message: DescriptorProto) -> list[str]:
        return [
            line
            for each in message.extension_range
            for line in self._statement(
                f"extensions {_range(each.start, each.end - 1, _NUMBER_MAX)}",
                self._settings(each.options),
            )
        ]

    def _reserved(
        self, target: DescriptorProto | EnumDescriptorProto, most: int, behind: int
    ) -> list[str]:
        ranges = [(each.start, each.end - behind) for each in target.reserved_range]
        names = [quoted(each) for each in target.reserved_name]
        if self._is_normalized:
            ranges.sort()
            names.sort()
        numbers = [_range(*each, most) for each in ranges]
        return [f"reserved {', '.join(each)};" for each in (numbers, names) if each]

    def _settings(self, options: Any) -> list[tuple[str, str]]:
        """Return the names and values of options; those of the text, then the interpreted ones."""
        found = [(_option_name(each), _option_value(each)) for each in options.uninterpreted_option]
        known = {name for name, _ in found}
        for field, value in options.ListFields():
            name = f"({field.full_name})" if field.is_extension else field.name
            if name != "uninterpreted_option" and name not in known and name != "map_entry":
                found += [(name, text) for text in _interpreted(field, value)]
        return sorted(found) if self._is_normalized else found

    def _option_lines(self, options: Any) -> list[str]:
        return [
            line
            for name, value in self._settings(options)
            for line in f"option {name} = {value};".split("\n")
        ]

    def _statement(self, head: str, settings: list[tuple[str, str]]) -> list[str]:
        """Return a statement with options in brackets."""
        if not settings:
            return [f"{head};"]
        if self._is_normalized:
            settings = sorted(settings)
        texts = [f"{name} = {value}" for name, value in settings]
        if len(texts) == 1:
            return f"{head} [{texts[0]}];".split("\n")
        inner = [f"  {line}" for line in ",\n".join(texts).split("\n")]
        return [f"{head} [", *inner, "];"]


def _joined(sections: Iterable[list[str]]) -> list[str]:
    """Return the lines of sections with an empty line between them."""
    lines: list[str] = []
    for each in sections:
        if each:
            lines += ["", *each] if lines else each
    return lines


def _block(head: str, *sections: list[str]) -> list[str]:
    lines = _joined([[f"  {line}" for line in each] for each in sections])
    return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]


def _is_plain(field: FieldDescriptorProto) -> bool:
    """Return whether a field is in no oneof that the text has."""
    return field.proto3_optional or not field.HasField("oneof_index")


def _type(field: FieldDescriptorProto) -> str:
    name: str = field.type_name or FieldDescriptorProto.Type.Name(field.type)
    return name.removeprefix("TYPE_").lower() if not field.type_name else name


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == most else end}"


def _json_name(name: str) -> str:
    """Return the name of a field in JSON that it has by default."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def _option_name(option: UninterpretedOption) -> str:
    return ".".join(
        f"({part.name_part})" if part.is_extension else part.name_part for part in option.name
    )


def _option_value(option: UninterpretedOption) -> str:
    if option.HasField("string_value"):
        return quoted(option.string_value.decode(errors="replace"))
    value: str = option.aggregate_value or option.identifier_value
    return value


def _interpreted(field: Any, value: Any) -> list[str]:
    """Return the texts of an option that a compiler has interpreted."""
    values = list(value) if field.is_repeated else [value]
    if field.enum_type is not None:
        return [field.enum_type.values_by_number[each].name for each in values]
    if field.message_type is not None:
        return [aggregate_text(str(each)) for each in values]
    return [
        quoted(each)
        if isinstance(each, str)
        else str(each).lower()
        if isinstance(each, bool)
        else str(each)
        for each in values
    ]
