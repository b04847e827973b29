"""Generate the decoder of a message version as straight-line Python.

One `Struct.unpack_from` reads adjacent fields of fixed size and the length prefix after them.
Structs are inlined. Only tagged fields, which are rare, have separate functions. Reads past the end
need no separate check: `unpack_from` and indexing raise an error, and the last comparison of
position and end detects a slice that is too short. A count is checked before its items are created:
they must fit into the remaining bytes at their smallest size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, cast

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import (
    Bytes,
    read_unsigned_varint,
    string_length_tail,
    varint_tail,
)
from barnabas.protocol.schema import (
    BYTES,
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

Decoder = Callable[[Any, int, int], tuple[Any, int]]
# The same, as a generator that yields before each item of each array.
StepDecoder = Callable[[Any, int, int], Generator[None, None, tuple[Any, int]]]
# Limit for the items in all arrays of a message that is decoded in steps. It bounds the
# memory of a request, which can be a hundred times its size in bytes.
ITEMS_MAX = 500_000
# Limit for the tagged fields of one struct, including unknown ones. Real structs have far fewer.
TAGS_MAX = 4_096


def compile_decoder(message: type[Message], version: int) -> Decoder:
    """Compile the function (view, position, end) -> (message, position after it)."""
    return _DecoderWriter(message, version).compile()


def compile_step_decoder(message: type[Message], version: int) -> StepDecoder:
    """Compile the decoder for messages that are too large for one turn of an event loop."""
    return cast("StepDecoder", _DecoderWriter(message, version, in_steps=True).compile())


class _DecoderWriter:
    def __init__(self, message: type[Message], version: int, *, in_steps: bool = False) -> None:
        # Whether to generate a generator. Tagged fields are read by plain functions in both cases.
        self._in_steps = in_steps
        self._in_tags = False
        self._message = message
        self._version = version
        self._flexible = is_flexible(message, version)
        self._lines: list[str] = []
        self._indent = 1
        # Finished functions for tagged fields; they precede the decoder in the source.
        self._functions: list[str] = []
        # Fixed-size values that are not read yet: (struct letter, assignment target).
        self._run: list[tuple[str, str]] = []
        self._serial = 0
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "varint_tail": varint_tail,
            "string_length_tail": string_length_tail,
            "read_unsigned_varint": read_unsigned_varint,
            "skip_tags": skip_tags,
            "null": _null_error,
            "short": _short_error,
            "bad_tag": _tag_error,
            "check_tag_count": _check_tag_count,
            "too_many": _too_many_error,
        }

    def compile(self) -> Decoder:
        root = self._new_name("o")
        if self._in_steps:
            self._line(f"left = {ITEMS_MAX}")
            self._line("yield")
        self._struct(self._message, root)
        self._line("if pos > end: raise short('bytes', pos, end)")
        self._line(f"return {root}, pos")
        source = "\n".join([*self._functions, "def decode(view, pos, end):", *self._lines, ""])
        title = f"{self._message.__name__} v{self._version} decoder"
        return compile_function(source, "decode", title, self._names)

    # -- writing lines

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _new_name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}{self._serial}"

    def _constant(self, prefix: str, value: Any) -> str:
        name = self._new_name(prefix)
        self._names[name] = value
        return name

    def _flush(self) -> None:
        """Write the code that reads the pending run of fixed-size values."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = [target for _, target in self._run]
        self._run = []
        if codes == "B":
            self._line(f"{targets[0]} = view[pos]; pos += 1")
            return
        layout = struct.Struct(">" + codes)
        reader = "read_" + codes.replace("?", "Z")
        self._names[reader] = layout.unpack_from
        self._line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {reader}(view, pos)")
        self._line(f"pos += {layout.size}")

    # -- structs

    def _struct(self, cls: type[Struct], name: str) -> None:
        """Write the code that reads a struct into a new instance called `name`."""
        self._flush()
        self._line(f"{name} = new({self._class_name(cls)})")
        version = self._version
        tagged = []
        for each in cls.__fields__:
            target = f"{name}.{each.name}"
            if not each.is_in(version):
                self._assign_default(each, target)
            elif each.tag is not None and self._flexible:
                self._assign_default(each, target)
                tagged.append(each)
            else:
                self._field(each, each.kind, target, each.is_nullable(version))
        if self._flexible:
            self._run.append(("B", "tags"))
            self._flush()
            reader = self._tag_function(tagged) if tagged else "skip_tags"
            self._line(f"if tags: pos = {reader}(view, pos, end, tags, {name})")
        self._flush()

    def _class_name(self, cls: type[Struct]) -> str:
        name = f"C_{cls.__name__}"
        self._names[name] = cls
        return name

    def _assign_default(self, each: Field, target: str) -> None:
        default = each.default()
        if default is None or type(default) in (int, bool, str, bytes, list):
            self._line(f"{target} = {default!r}")
        elif default is each.default():
            self._line(f"{target} = {self._constant('D', default)}")
        else:
            self._line(f"{target} = {self._constant('F', each.default)}()")

    def _tag_function(self, tagged: list[Field]) -> str:
        """Write the function that reads the tagged fields of one struct."""
        function = self._new_name("tags_")
        outer, self._lines = self._lines, []
        indent, self._indent = self._indent, 1
        was_in_tags, self._in_tags = self._in_tags, True
        self._line("count, pos = check_tag_count(view, pos, end, count)")
        self._line("seen = set()")
        self._line("for _ in range(count):")
        self._indent = 2
        self._line("tag, pos = read_unsigned_varint(view, pos)")
        self._line("size, pos = read_unsigned_varint(view, pos)")
        self._line("edge = pos + size")
        self._line("if tag in seen or edge > end: raise bad_tag(tag)")
        self._line("seen.add(tag)")
        for each in tagged:
            self._line(f"if tag == {each.tag}:")
            self._indent = 3
            nullable = each.is_nullable(self._version)
            self._field(each, each.kind, f"whole.{each.name}", nullable)
            self._flush()
            self._line("if pos != edge: raise bad_tag(tag)")
            self._line("continue")
            self._indent = 2
        self._line("pos = edge")
        self._indent = 1
        self._line("return pos")
        self._functions += [f"def {function}(view, pos, end, count, whole):", *self._lines, ""]
        self._lines, self._indent = outer, indent
        self._in_tags = was_in_tags
        return function

    # -- fields

    def _field(
        self, each: Field, kind: Kind | Array | type[Struct], target: str, nullable: bool
    ) -> None:
        if isinstance(kind, Array):
            self._array(each, kind.element, target, nullable)
        elif not isinstance(kind, Kind):
            self._nested_struct(each, kind, target, nullable)
        elif kind.code:
            self._run.append((kind.code, target))
        else:
            self._variable(each, kind, target, nullable)

    def _nested_struct(self, each: Field, cls: type[Struct], target: str, nullable: bool) -> None:
        """Write the code that reads a struct.

        A nullable struct follows a byte, which is 1 if the struct is present. Null is -1 (KIP-893).
        In a tagged field null is 0, because Kafka writes a varint there.
        """
        name = self._new_name("o")
        if nullable:
            self._run.append(("b", "n"))
            self._flush()
            is_null = "n < 0" if each.tag is None else "n < 1"
            self._line(f"if {is_null}: {target} = None")
            self._line("else:")
            self._indent += 1
        self._struct(cls, name)
        self._line(f"{target} = {name}")
        if nullable:
            self._indent -= 1

    def _length(self, legacy_code: str, tail: str) -> str:
        """Write the code that reads a length prefix into `n`. Return the condition for null."""
        if not self._flexible:
            self._run.append((legacy_code, "n"))
            self._flush()
            return "n < 0"
        self._run.append(("B", "n"))
        self._flush()
        self._line(f"if n > 127: n, pos = {tail}(view, pos, n)")
        return "not n"

    def _variable(self, each: Field, kind: Kind, target: str, nullable: bool) -> None:
        """Write the code that reads a string, bytes or records."""
        is_string = kind is STRING
        tail = "string_length_tail" if is_string else "varint_tail"
        is_null = self._length("h" if is_string else "i", tail)
        if kind is STRING:
            value = "str(view[pos:stop], 'utf-8')"
        elif kind is BYTES:
            value = "bytes(view[pos:stop])"
        else:
            assert kind is RECORDS
            value = "view[pos:stop]"
        outcome = f"{target} = None" if nullable else f"raise null({self._path(each)})"
        self._line(f"if {is_null}: {outcome}")
        self._line("else:")
        stop = "pos + n - 1" if self._flexible else "pos + n"
        self._line(f"    stop = {stop}; {target} = {value}; pos = stop")

    def _path(self, each: Field) -> str:
        return repr(f"{each.owner}.{each.name}")

    def _array(
        self, each: Field, element: Kind | type[Struct], target: str, nullable: bool
    ) -> None:
        is_null = self._length("i", "varint_tail")
        outcome = f"{target} = None" if nullable else f"raise null({self._path(each)})"
        self._line(f"if {is_null}: {outcome}")
        self._line("else:")
        self._indent += 1
        if self._flexible:
            self._line("n -= 1")
        item_bytes = self._item_bytes_min(element)
        needed = "n" if item_bytes == 1 else f"n * {item_bytes}"
        self._line(f"if {needed} > end - pos: raise short({self._path(each)}, n, end - pos)")
        if self._in_steps and not self._in_tags:
            self._line("left -= n")
            self._line(f"if left < 0: raise too_many({self._path(each)})")
        if isinstance(element, Kind) and element.code and element is not UUID:
            self._line(f"{target} = list(unpack_from(f'>{{n}}{element.code}', view, pos))")
            self._line(f"pos += {needed}")
        elif element is UUID:
            self._line("stop = pos + n * 16")
            self._line(f"{target} = [bytes(view[at:at + 16]) for at in range(pos, stop, 16)]")
            self._line("pos = stop")
        else:
            self._loop(each, element, target)
        self._indent -= 1

    def _loop(self, each: Field, element: Kind | type[Struct], target: str) -> None:
        items = self._new_name("items")
        item = self._new_name("o")
        self._line(f"{target} = {items} = []")
        self._line("for _ in range(n):")
        self._indent += 1
        if self._in_steps and not self._in_tags:
            self._line("yield")
        if isinstance(element, Kind):
            self._variable(each, element, item, nullable=False)
        else:
            self._struct(element, item)
        self._line(f"{items}.append({item})")
        self._indent -= 1

    # -- bounds

    def _item_bytes_min(self, kind: Kind | Array | type[Struct]) -> int:
        """Return the smallest number of bytes of an item of this type; at least 1."""
        return max(1, self._bytes_min(kind, nullable=False))

    def _bytes_min(self, kind: Kind | Array | type[Struct], nullable: bool) -> int:
        if isinstance(kind, Array):
            return 1 if self._flexible else 4
        if isinstance(kind, Kind):
            if kind.code:
                return kind.size
            if self._flexible:
                return 1
            return 2 if kind is STRING else 4
        if nullable:
            return 1
        total = 1 if self._flexible else 0
        for each in kind.__fields__:
            is_tagged = each.tag is not None and self._flexible
            if each.is_in(self._version) and not is_tagged:
                total += self._bytes_min(each.kind, each.is_nullable(self._version))
        return total


def skip_tags(view: Bytes, position: int, end: int, count: int, _whole: object) -> int:
    """Skip the tagged fields of a struct. `count` is the first byte of their number.

    Returns:
        The position after the tagged fields.
    """
    count, position = _check_tag_count(view, position, end, count)
    seen = set()
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position += size
        if tag in seen or position > end:
            raise _tag_error(tag)
        seen.add(tag)
    return position


def _check_tag_count(view: Bytes, position: int, end: int, count: int) -> tuple[int, int]:
    if count > 127:
        count, position = varint_tail(view, position, count)
    if count * 2 > end - position:
        raise _short_error("tagged fields", count, end - position)
    if count > TAGS_MAX:
        raise ProtocolError(f"a struct has {count} tagged fields; at most {TAGS_MAX} are allowed")
    return count, position


def _null_error(path: str) -> ProtocolError:
    return ProtocolError(f"{path} is null, which this version does not allow")


def _too_many_error(path: str) -> ProtocolError:
    return ProtocolError(
        f"{path}: the arrays of a message may have at most {ITEMS_MAX} items; send several messages"
    )


def _short_error(path: str, claimed: int, left: int) -> ProtocolError:
    return ProtocolError(f"{path}: the count or length is {claimed}, but only {left} bytes remain")


def _tag_error(tag: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} occurs twice or does not match its size")
