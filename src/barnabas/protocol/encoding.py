"""Generate the encoder of a message version as straight-line Python.

Adjacent fields of fixed size are packed together. Records of at least 1 KiB, and records that are
not bytes (a slice of a file), become separate chunks. Data that the socket can send from a file is
thus never read into memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Protocol, cast

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import STRING_BYTES_MAX, unsigned_varint
from barnabas.protocol.schema import (
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Kind,
    Message,
    Struct,
    compile_function,
    is_flexible,
)


class Sliceable(Protocol):
    """Bytes that need not be in memory, such as a slice of a file."""

    def __len__(self) -> int: ...

    def read(self) -> bytes: ...


# A part of an encoded message.
Chunk = bytes | bytearray | memoryview | Sliceable

# The content of a `records` field: a view after decoding, any chunk before encoding.
Records = Chunk

# Records of at least this size become a chunk and are not copied.
CHUNK_BYTES_MIN = 1024
# A tuple, because a union expression would be created again for each call of isinstance.
_IN_MEMORY = (bytes, bytearray, memoryview)

Encoder = Callable[[Any, bytearray, list[Any]], bytearray]
# The same, as a generator that yields before each item of each array.
StepEncoder = Callable[[Any, bytearray, list[Any]], Generator[None, None, bytearray]]


def compile_encoder(message: type[Message], version: int) -> Encoder:
    """Compile the function (message, out, chunks) -> the bytearray that is still open.

    The function appends to `out`. For records that become a separate chunk, it moves `out` and the
    records to `chunks` and continues with a new bytearray.
    """
    return _EncoderWriter(message, version).compile()


def compile_step_encoder(message: type[Message], version: int) -> StepEncoder:
    """Compile the encoder for messages that are too large for one turn of an event loop."""
    return cast("StepEncoder", _EncoderWriter(message, version, in_steps=True).compile())


class _EncoderWriter:
    def __init__(self, message: type[Message], version: int, *, in_steps: bool = False) -> None:
        # Whether to generate a generator. Tagged fields are written by plain functions in both
        # cases.
        self._in_steps = in_steps
        self._in_tags = False
        self._message = message
        self._version = version
        self._flexible = is_flexible(message, version)
        self._lines: list[str] = []
        self._indent = 1
        self._functions: list[str] = []
        # Fixed-size values that are not written yet: (struct letter, expression).
        self._run: list[tuple[str, str]] = []
        self._serial = 0
        self._names: dict[str, Any] = {
            "pack": struct.pack,
            "unsigned_varint": unsigned_varint,
            "long_string": _long_string,
            "omitted": _omitted_error,
            "invalid": _invalid_error,
            "is_separate": _is_separate,
        }

    def compile(self) -> Encoder:
        self._struct(self._message, "o")
        self._flush()
        if self._in_steps:
            self._line("yield")
        self._line("return out")
        source = "\n".join([*self._functions, "def encode(o, out, chunks):", *self._lines, ""])
        title = f"{self._message.__name__} v{self._version} encoder"
        return compile_function(source, "encode", title, self._names)

    # -- writing lines

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _new_name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}{self._serial}"

    def _flush(self) -> None:
        """Write the code that packs the pending run of fixed-size values."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run)
        self._run = []
        if codes == "B" and values == "0":
            self._line("out.append(0)")
            return
        writer = "pack_" + codes.replace("?", "Z")
        self._names[writer] = struct.Struct(">" + codes).pack
        self._line(f"out += {writer}({values})")

    # -- structs

    def _struct(self, cls: type[Struct], name: str) -> None:
        tagged = []
        for each in cls.__fields__:
            value = f"{name}.{each.name}"
            if not each.is_in(self._version):
                self._check_omitted(each, value)
            elif each.tag is not None and self._flexible:
                tagged.append(each)
            else:
                self._field(each, each.kind, value, each.is_nullable(self._version))
        if not self._flexible:
            return
        if not tagged:
            self._run.append(("B", "0"))
            return
        self._flush()
        function = self._tag_function(tagged)
        # A default struct is nearly always the shared instance, so compare by identity first.
        # The tag function compares by value, so an equal copy is also absent.
        absent = " and ".join(self._is_absent(each, name, by_identity=True) for each in tagged)
        self._line(f"if {absent}: out.append(0)")
        self._line(f"else: out += {function}({name})")

    def _check_omitted(self, each: Field, value: str) -> None:
        """Write a check that raises an error if this version cannot carry a value that is set.

        Values of ignorable fields are dropped without an error.
        """
        if each.ignorable:
            return
        differs = self._differs(each, value)
        self._line(f"if {differs}: raise omitted({self._path(each)}, {self._version})")

    def _differs(self, each: Field, value: str) -> str:
        default = each.default()
        if default is None:
            return f"{value} is not None"
        if isinstance(default, Struct):
            name = self._default_name(each, default)
            return f"{value} is not {name} and {value} != {name}"
        return f"{value} != {default!r}"

    def _is_absent(self, each: Field, name: str, *, by_identity: bool = False) -> str:
        value = f"{name}.{each.name}"
        default = each.default()
        if default is None:
            return f"{value} is None"
        if isinstance(default, Struct):
            default_name = self._default_name(each, default)
            return f"{value} is {default_name}" if by_identity else f"{value} == {default_name}"
        return f"{value} == {default!r}"

    def _default_name(self, each: Field, default: Struct) -> str:
        name = f"D_{each.owner}_{each.name}"
        self._names[name] = default
        return name

    def _path(self, each: Field) -> str:
        return repr(f"{each.owner}.{each.name}")

    def _tag_function(self, tagged: list[Field]) -> str:
        """Write the function that returns a struct's tagged fields, after their count."""
        function = self._new_name("tags_")
        outer, self._lines = self._lines, []
        indent, self._indent = self._indent, 1
        was_in_tags, self._in_tags = self._in_tags, True
        self._line("count = 0; whole = bytearray(); chunks = []")
        for each in sorted(tagged, key=lambda tagged_field: tagged_field.tag or 0):
            self._line(f"if not ({self._is_absent(each, 'o')}):")
            self._indent = 2
            self._line("count += 1; out = bytearray()")
            nullable = each.is_nullable(self._version)
            self._field(each, each.kind, f"o.{each.name}", nullable)
            self._flush()
            self._line(f"whole += {unsigned_varint(each.tag or 0)!r}")
            self._line("whole += unsigned_varint(len(out)); whole += out")
            self._indent = 1
        self._line("return unsigned_varint(count) + whole")
        self._functions += [f"def {function}(o):", *self._lines, ""]
        self._lines, self._indent = outer, indent
        self._in_tags = was_in_tags
        return function

    # -- fields

    def _field(
        self, each: Field, kind: Kind | Array | type[Struct], value: str, nullable: bool
    ) -> None:
        if isinstance(kind, Array):
            self._array(each, kind.element, value, nullable)
        elif not isinstance(kind, Kind):
            self._nested_struct(each, kind, value, nullable)
        elif kind is UUID:
            self._line(f"b = {value}")
            self._line(f"if len(b) != 16: raise invalid({self._path(each)}, 'a uuid has 16 bytes')")
            self._run.append((kind.code, value))
        elif kind.code:
            self._run.append((kind.code, value))
        elif kind is RECORDS:
            self._records(each, value, nullable)
        else:
            self._variable(each, kind, value, nullable)

    def _nested_struct(self, each: Field, cls: type[Struct], value: str, nullable: bool) -> None:
        """Write the code that encodes a struct.

        decoding.py describes the byte before a nullable struct.
        """
        name = self._new_name("o")
        self._line(f"{name} = {value}")
        if not nullable:
            self._struct(cls, name)
            return
        self._flush()
        null_marker = 255 if each.tag is None else 0
        self._line(f"if {name} is None: out.append({null_marker})")
        self._line("else:")
        self._indent += 1
        self._line("out.append(1)")
        self._struct(cls, name)
        self._flush()
        self._indent -= 1

    def _variable(self, each: Field, kind: Kind, value: str, nullable: bool) -> None:
        """Write the code that encodes a string or bytes."""
        is_string = kind is STRING
        convert = f"b = {value}.encode()" if is_string else f"b = {value}"
        plus = " + 1" if self._flexible else ""
        indent = self._indent
        if not nullable:
            self._line(convert)
            self._line(f"n = len(b){plus}")
        elif self._flexible:
            # Null is the most common value here, so it has its own short branch.
            self._flush()
            self._line(f"b = {value}")
            self._line("if b is None: out.append(0)")
            self._line("else:")
            self._indent += 1
            if is_string:
                self._line("b = b.encode()")
            self._line("n = len(b) + 1")
        else:
            self._line(f"b = {value}")
            self._line("if b is None: b = b''; n = -1")
            convert_known = "b = b.encode(); " if is_string else ""
            self._line(f"else: {convert_known}n = len(b)")
        self._length("h" if is_string else "i", each, is_string)
        self._line("out += b")
        self._indent = indent

    def _length(self, legacy_code: str, each: Field, is_string: bool = False) -> None:
        """Write the code for the length prefix `n`.

        In compact form, `n` is already the length + 1.
        """
        if not self._flexible:
            self._run.append((legacy_code, "n"))
            self._flush()
            return
        self._flush()
        longer = f"long_string({self._path(each)}, n)" if is_string else "unsigned_varint(n)"
        self._line("if n < 128: out.append(n)")
        self._line(f"else: out += {longer}")

    def _records(self, each: Field, value: str, nullable: bool) -> None:
        name = self._new_name("records")
        null_length, plus = (0, " + 1") if self._flexible else (-1, "")
        self._line(f"{name} = {value}")
        if nullable:
            self._line(f"n = {null_length} if {name} is None else len({name}){plus}")
        else:
            self._line(f"n = len({name}){plus}")
        self._length("i", each)
        indent = self._indent
        if nullable:
            self._line(f"if {name} is not None:")
            self._indent += 1
        self._line(f"if is_separate({name}):")
        self._line(f"    chunks.append(out); chunks.append({name}); out = bytearray()")
        self._line(f"else: out += {name}")
        self._indent = indent

    def _array(self, each: Field, element: Kind | type[Struct], value: str, nullable: bool) -> None:
        items = self._new_name("items")
        null_length, plus = (0, " + 1") if self._flexible else (-1, "")
        self._line(f"{items} = {value}")
        if nullable:
            self._line(f"n = {null_length} if {items} is None else len({items}){plus}")
        else:
            self._line(f"n = len({items}){plus}")
        self._length("i", each)
        indent = self._indent
        if nullable:
            self._line(f"if {items}:")
            self._indent += 1
        if isinstance(element, Kind) and element.code and element is not UUID:
            self._line(f"out += pack(f'>{{len({items})}}{element.code}', *{items})")
        else:
            item = self._new_name("o")
            self._line(f"for {item} in {items}:")
            self._indent += 1
            if self._in_steps and not self._in_tags:
                self._line("yield")
            before = len(self._lines)
            if isinstance(element, Kind):
                self._field(each, element, item, nullable=False)
            else:
                self._struct(element, item)
            self._flush()
            if len(self._lines) == before:
                self._line("pass")
        self._indent = indent


def _is_separate(records: Any) -> bool:
    """Return whether the records become a separate chunk and are not copied."""
    return not isinstance(records, _IN_MEMORY) or len(records) >= CHUNK_BYTES_MIN


def _long_string(path: str, length_plus_one: int) -> bytes:
    if length_plus_one - 1 > STRING_BYTES_MAX:
        raise ProtocolError(
            f"{path}: the string has {length_plus_one - 1} bytes; at most {STRING_BYTES_MAX} are "
            "allowed"
        )
    return unsigned_varint(length_plus_one)


def _omitted_error(path: str, version: int) -> ProtocolError:
    return ProtocolError(f"version {version} cannot carry {path}, which is set")


def _invalid_error(path: str, problem: str) -> ProtocolError:
    return ProtocolError(f"{path}: {problem}")
