"""The declared layout of protocol messages: one line per field, all versions in one table.

The source is the message format of KIP-482 and the rules of Kafka's message schemas. A class body
only stores its table. The constructor, decoder and encoder are compiled on first use, so importing
a message takes microseconds.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO_UUID = bytes(16)

# The upper bound of an open version range ("4+").
VERSION_MAX = 0x7FFF

MISSING: Any = object()


class Kind(NamedTuple):
    """A primitive type of the protocol. `code` is its struct letter, empty for variable length."""

    name: str
    code: str
    size: int
    implicit_default: Any


BOOL = Kind("bool", "?", 1, False)
INT8 = Kind("int8", "b", 1, 0)
INT16 = Kind("int16", "h", 2, 0)
INT32 = Kind("int32", "i", 4, 0)
INT64 = Kind("int64", "q", 8, 0)
UINT16 = Kind("uint16", "H", 2, 0)
UINT32 = Kind("uint32", "I", 4, 0)
FLOAT64 = Kind("float64", "d", 8, 0.0)
UUID = Kind("uuid", "16s", 16, ZERO_UUID)
STRING = Kind("string", "", 0, "")
BYTES = Kind("bytes", "", 0, b"")
RECORDS = Kind("records", "", 0, None)


class Array(NamedTuple):
    """A list of primitives or structs."""

    element: Kind | type[Struct]


def array(element: Kind | type[Struct]) -> Array:
    """Return the type of a list whose items are `element`."""
    return Array(element)


def version_range(text: str) -> tuple[int, int] | None:
    """Parse "3", "3-7", "3+" or "none" as an inclusive range."""
    if text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class Field:
    """One line of a field table."""

    __slots__ = (
        "_nullable",
        "_versions",
        "declared_default",
        "has_default",
        "ignorable",
        "kind",
        "name",
        "owner",
        "tag",
    )

    def __init__(self, kind: Kind | Array | type[Struct], versions: str) -> None:
        self.name = ""
        self.owner = ""
        self.kind = kind
        # Whether the constructor may omit the field.
        self.has_default = False
        # The default if it is immutable; MISSING if each struct needs its own default.
        self.declared_default: Any = MISSING
        # The tag number. A tagged field is tagged in every flexible version that has it.
        self.tag: int | None = None
        # Whether an encoder may drop a value that the version cannot carry.
        self.ignorable = False
        self._versions = versions
        self._nullable = "none"

    @property
    def versions(self) -> str:
        return self._versions

    @property
    def nullable_versions(self) -> str:
        return self._nullable

    @property
    def is_required(self) -> bool:
        return not self.has_default

    def is_in(self, version: int) -> bool:
        span = version_range(self._versions)
        return span is not None and span[0] <= version <= span[1]

    def is_nullable(self, version: int) -> bool:
        span = version_range(self._nullable)
        return span is not None and span[0] <= version <= span[1]

    def default(self) -> Any:
        """Return the default value; a new object if the value is mutable."""
        if self.declared_default is not MISSING:
            return self.declared_default
        if isinstance(self.kind, Kind):
            return self.kind.implicit_default
        if isinstance(self.kind, Array):
            return []
        return self.kind.default_instance()

    def __repr__(self) -> str:
        return f"Field({self.owner}.{self.name}, {self._versions!r})"


def field(
    kind: Kind | Array | type[Struct],
    versions: str,
    *,
    nullable: str = "none",
    default: Any = MISSING,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field of a struct.

    Args:
        kind: A primitive type, an `array(...)`, or a struct class.
        versions: Versions of the message with this field, as "3", "3-7" or "3+".
        nullable: Versions in which the value may be None.
        default: Value when the field is omitted or the version does not carry it. `[]` and the
            struct class itself mean a new object. Without a default, the constructor requires the
            field.
        tag: Number of a tagged field (KIP-482).
        ignorable: Whether an encoder drops a value that the version cannot carry, instead of
            raising an error.
    """
    declared = Field(kind, versions)
    declared.has_default = default is not MISSING
    if not isinstance(default, list | type):
        declared.declared_default = default
    declared.tag = tag
    declared.ignorable = ignorable
    declared._nullable = nullable
    return declared


class _StructMeta(type):
    """Metaclass that turns declared fields into slots; code is generated on first use."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _StructMeta:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                value.owner = name
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(each.name for each in fields)
        namespace["__fields__"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(metaclass=_StructMeta):
    """A group of fields in a message. The constructor takes keyword arguments only."""

    __fields__: ClassVar[tuple[Field, ...]]
    __default_instance__: ClassVar[Struct | None] = None

    def __init__(self, **values: Any) -> None:
        cls = _declaring_class(type(self))
        _install_constructor(cls)
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__fields__ is not other.__fields__:
            return NotImplemented
        return all(
            getattr(self, each.name) == getattr(other, each.name) for each in self.__fields__
        )

    __hash__ = None  # type: ignore[assignment]  # structs can change

    def __repr__(self) -> str:
        inside = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in self.__fields__)
        return f"{_declaring_class(type(self)).__name__}({inside})"

    @classmethod
    def default_instance(cls) -> Any:
        """Return a struct of defaults; shared and read-only if all its values are immutable.

        Fetch responses have three such structs per partition, which are nearly always absent.
        Sharing avoids their construction and lets the encoder detect "absent" by identity.
        """
        if any(isinstance(each.kind, Array) or not _is_primitive(each) for each in cls.__fields__):
            return _of_defaults(cls, cls)
        shared = cls.__dict__.get("__default_instance__")
        if shared is None:
            body = {
                "__module__": cls.__module__,
                "__setattr__": _refuse_write,
                # Copies and deep copies return the shared instance.
                "__reduce__": lambda _self: (cls.default_instance, ()),
            }
            protected = _StructMeta(cls.__name__, (cls,), body)
            protected.__fields__ = cls.__fields__  # type: ignore[attr-defined]  # set by the metaclass
            shared = _of_defaults(cls, protected)
            cls.__default_instance__ = shared
        return shared


class Message(Struct):
    """A request or a response: the root of a layout.

    Class keywords: `api_key`, `versions` (all versions that the codec supports) and `flexible` (the
    versions with compact lengths and tagged fields, KIP-482).
    """

    __api_key__: ClassVar[int] = -1
    __versions__: ClassVar[tuple[int, int]] = (0, 0)
    __flexible_from__: ClassVar[int] = VERSION_MAX + 1

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "", flexible: str = "none"
    ) -> None:
        if not versions:
            return
        span = version_range(versions)
        assert span is not None
        first_flexible = version_range(flexible)
        cls.__api_key__ = api_key
        cls.__versions__ = span
        cls.__flexible_from__ = VERSION_MAX + 1 if first_flexible is None else first_flexible[0]


class Record(Message):
    """A key, a value or other data that Kafka stores in a log or file.

    The class keyword `type` is the record type in its log; -1 if there is no record type.
    """

    __record_type__: ClassVar[int] = -1

    def __init_subclass__(
        cls,
        *,
        type: int = -1,  # noqa: A002 - Kafka's name
        versions: str = "",
        flexible: str = "none",
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        if versions:
            cls.__record_type__ = type


def is_flexible(message: type[Message], version: int) -> bool:
    """Return whether this version uses compact lengths and tagged fields."""
    return version >= message.__flexible_from__


def _is_primitive(each: Field) -> bool:
    return isinstance(each.kind, Kind)


def _declaring_class(cls: type[Struct]) -> type[Struct]:
    """Return the class that declares the fields (the class of a shared default is empty)."""
    for base in cls.__mro__:
        if "__setattr__" not in base.__dict__:
            return base
    raise AssertionError(cls)


def _of_defaults(cls: type[Struct], concrete: type) -> Any:
    instance: Any = object.__new__(concrete)
    for each in cls.__fields__:
        object.__setattr__(instance, each.name, each.default())
    return instance


def _refuse_write(self: Struct, name: str, _value: Any) -> None:
    owner = _declaring_class(type(self)).__name__
    raise AttributeError(f"cannot set {name} of a shared default: assign a new {owner} instead")


def _install_constructor(cls: type[Struct]) -> None:
    cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]  # generated


def _compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """Generate the keyword-only constructor of a struct from its field table."""
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters = ["self"]
    body = []
    for each in cls.__fields__:
        name = each.name
        if each.is_required:
            parameters.append(name)
            body.append(f"    self.{name} = {name}")
            continue
        default = each.default()
        if default is each.default():
            # Immutable, or a shared struct. A lookup of the shared struct per call would cost 1.4
            # µs.
            names[f"D_{name}"] = default
            parameters.append(f"{name}=D_{name}")
            body.append(f"    self.{name} = {name}")
            continue
        fresh = "[]" if isinstance(each.kind, Array) else f"F_{name}()"
        names[f"F_{name}"] = each.default
        parameters.append(f"{name}=MISSING")
        body.append(f"    self.{name} = {fresh} if {name} is MISSING else {name}")
    if len(parameters) > 1:
        parameters.insert(1, "*")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *body, "    return None", ""])
    return compile_function(source, "__init__", f"{cls.__name__} constructor", names)


def compile_function(
    source: str, function: str, title: str, names: dict[str, Any]
) -> Callable[..., Any]:
    """Compile `source` with `names` as globals; return the function with this name.

    The source is registered with `linecache` under a name such as `<barnabas.protocol FetchRequest
    v12 decoder>`, so tracebacks show its lines.
    """
    filename = f"<barnabas.protocol {title}>"
    code = compile(source, filename, "exec")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(code, names)  # noqa: S102 - the source comes from the field tables of this package
    compiled: Callable[..., Any] = names[function]
    return compiled
