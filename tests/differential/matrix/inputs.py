"""Classes of inputs, derived from the field table of a request by the kinds and names of fields.

An input is a valid request with one change. `inputs` selects the classes that apply to a field.
`CLASSES` names the reason why a class applies to no field of an API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    Array,
    Struct,
    is_flexible,
)
from differential.matrix.loose_requests import UNKNOWN_FIELD, is_variable, struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.protocol.schema import Field, Message
    from differential.scene import Scene

    # Returns the value to send, from the value in the valid request.
    Change = Callable[[Scene, Any], Any]

Path = tuple[str | int, ...]


class Input(NamedTuple):
    """One change of a valid request."""

    group: str
    label: str
    path: Path
    change: Change


class Place(NamedTuple):
    """A field inside a request."""

    field: Field
    owner: str
    path: Path
    value: Any

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def is_list(self) -> bool:
        return isinstance(self.field.kind, Array)

    @property
    def kind(self) -> Any:
        """Return the kind of the field, or of the items of a list."""
        return self.field.kind.element if isinstance(self.field.kind, Array) else self.field.kind


# Each class, with the reason why it does not apply to an API.
CLASSES = {
    "valid": "",
    "unknown topic": "no field names a topic",
    "bad topic name": "no field names a topic",
    "unknown id": "no field is a uuid",
    "zero id": "no field is a uuid",
    "bad partition": "no field is a partition's number",
    "wrong epoch": "no field is an epoch or a generation",
    "wrong broker": "no field is a node's number",
    "bad enumeration": "no field is a type, level or operation by number",
    "negative": "no other field is a number",
    "extreme": "no field is a number",
    "unknown group": "no field names a group",
    "unknown word": "no other field is a text",
    "empty text": "no field is a text",
    "long text": "no field is a text, or it is not sent",
    "odd bytes": "no field is bytes",
    "flag": "no field is true or false",
    "validate only": "the request has no such flag",
    "null allowed": "no field may be null",
    "null forbidden": "each text and list may be null",
    "empty list": "no field is a list",
    "duplicates": "no field is a list, or it is not sent",
    "unknown tag": "no version of the request is flexible",
}

_PARTITIONS = {"partition", "partition_index", "index", "partition_indexes", "partitions"}
_BROKERS = {"replica_id", "broker_id", "broker_ids", "replicas", "node_id", "voter_id"}
_BROKERS |= {"controller_id"}
_GROUPS = {"group_id", "groups", "groups_names", "key", "coordinator_keys"}
_TOPICS = {"topic", "topic_name", "topic_names"}
_EPOCHS = {"generation_id", "generation_id_or_member_epoch"}
_ENUMERATIONS = {
    "acks": (-2, 1, 2),
    "config_operation": (-1, 1, 2, 3, 4, 127),
    "election_type": (-1, 1, 2, 127),
    "endpoint_type": (-1, 0, 2, 3, 127),
    "isolation_level": (-1, 1, 2, 127),
    "key_type": (-1, 1, 2, 3, 127),
    "match_type": (-1, 1, 2, 3, 127),
    "resource_type": (-1, 0, 1, 2, 3, 4, 8, 16, 32, 64, 127),
    "resource_types": (-1, 0, 1, 2, 3, 4, 8, 16, 32, 64, 127),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1 << 50),
    "upgrade_type": (-1, 0, 2, 3, 4, 127),
}
_BAD_NAMES = ("", ".", "..", "a/b", "a b", "\u00e4", "a" * 250, "a\0b")
_RANGES = {
    INT8: (-(1 << 7), (1 << 7) - 1),
    INT16: (-(1 << 15), (1 << 15) - 1),
    INT32: (-(1 << 31), (1 << 31) - 1),
    INT64: (-(1 << 63), (1 << 63) - 1),
    UINT16: (0, (1 << 16) - 1),
}
_FLOATS = (-1.0, 0.0, 0.5, 1e18, 1e308, float("inf"), float("-inf"), float("nan"))
# An error message that quotes it twice fits into a response.
LONG = 10_000


def inputs(cls: type[Message], version: int, values: Mapping[str, Any]) -> Iterator[Input]:
    """Yield every input that can be made of a valid request in a version."""
    yield Input("valid", "as it is", (), lambda _, value: value)
    found = list(places(cls, version, values))
    for place in found:
        yield from _of_what_has_a_length(place, version)
        if place.kind in _RANGES:
            yield from _of_numbers(place)
        elif place.kind in (STRING, UUID):
            yield from _of_names(place)
        else:
            yield from _of_others(place)
    if is_flexible(cls, version):
        for path in dict.fromkeys(place.path[:-1] for place in found):
            at = (*path, UNKNOWN_FIELD)
            yield Input("unknown tag", f"{_shown(at)} is there", at, lambda _, __: 7)


def places(
    cls: type[Struct], version: int, values: Mapping[str, Any], at: Path = ()
) -> Iterator[Place]:
    """Yield each field of a request in a version. In a list only the first item counts."""
    for each in cls.__fields__:
        if not each.is_in(version):
            continue
        value = values.get(each.name, each.default())
        path = (*at, each.name)
        yield Place(each, cls.__name__, path, value)
        inside = struct_of(each.kind)
        if inside is None:
            continue
        if isinstance(each.kind, Array) and value:
            yield from places(inside, version, value[0], (*path, 0))
        elif not isinstance(each.kind, Array) and isinstance(value, dict):
            yield from places(inside, version, value, path)


def changed(values: Any, path: Path, change: Callable[[Any], Any], default: Any = None) -> Any:
    """Return the values with the value at a path changed; a missing value is the default."""
    if not path:
        return change(values)
    first, rest = path[0], path[1:]
    if isinstance(values, dict):
        inside = values.get(str(first), default)
        return {**values, str(first): changed(inside, rest, change, default)}
    return [changed(each, rest, change) if at == first else each for at, each in enumerate(values)]


def _fixed(group: str, place: Place, value: Any) -> Input:
    """Return an input with a fixed value; a list of plain items gets this value alone."""
    sent = [value] if place.is_list and place.kind in (STRING, UUID, *_RANGES) else value
    return Input(group, f"{_shown(place.path)} = {_text(value)}", place.path, lambda _, __: sent)


def _fresh(group: str, place: Place, what: str) -> Input:
    """Return an input with a new name, so that a created object affects no other request."""

    def change(scene: Scene, _value: Any) -> Any:
        name = scene.name(what)
        return [name] if place.is_list else name

    return Input(group, f"{_shown(place.path)} = a new name", place.path, change)


def _long(place: Place) -> Input:
    """Return an input with a long text that differs each time."""

    def change(scene: Scene, _value: Any) -> Any:
        text = scene.name("long").ljust(LONG, "x")
        return [text] if place.is_list else text

    return Input("long text", f"{_shown(place.path)} = {LONG} letters", place.path, change)


def _of_what_has_a_length(place: Place, version: int) -> Iterator[Input]:
    if is_variable(place.field):
        allowed = "null allowed" if place.field.is_nullable(version) else "null forbidden"
        yield Input(allowed, f"{_shown(place.path)} = null", place.path, lambda _, __: None)
    if place.is_list:
        yield Input("empty list", f"{_shown(place.path)} = []", place.path, lambda _, __: [])
    if place.is_list and place.value:
        twice = f"{_shown(place.path)} twice"
        yield Input("duplicates", twice, place.path, lambda _, items: [*items, *items])


def _of_numbers(place: Place) -> Iterator[Input]:
    least, most = _RANGES[place.kind]
    name = place.name
    if name in _ENUMERATIONS:
        yield from (_fixed("bad enumeration", place, each) for each in _ENUMERATIONS[name])
    elif name in _PARTITIONS:
        yield from (_fixed("bad partition", place, each) for each in (-1, 1000))
    elif name in _BROKERS:
        yield from (_fixed("wrong broker", place, each) for each in (-2, -1, 0, 9))
    elif "epoch" in name or name in _EPOCHS:
        yield from (_fixed("wrong epoch", place, each) for each in (-2, -1, 0, 1, 2, 3, 1000))
    elif least < 0:
        yield _fixed("negative", place, -1)
    yield _fixed("extreme", place, most)
    yield _fixed("extreme", place, least)


def _of_names(place: Place) -> Iterator[Input]:
    name = place.name
    if place.kind is UUID:
        yield _fixed("unknown id", place, b"\7" * 16)
        yield _fixed("zero id", place, ZERO_UUID)
        return
    if name in _TOPICS or (name == "name" and "Topic" in place.owner and "Conf" not in place.owner):
        yield _fresh("unknown topic", place, "unknown")
        yield from (_fixed("bad topic name", place, each) for each in _BAD_NAMES)
    elif name in _GROUPS:
        yield _fresh("unknown group", place, "unknown")
    else:
        yield _fixed("unknown word", place, "no-such-word")
        yield _fixed("unknown word", place, "a b/\u00e4\n")
    yield _fixed("empty text", place, "")
    yield _long(place)


def _of_others(place: Place) -> Iterator[Input]:
    if place.kind is BOOL:
        group = "validate only" if place.name == "validate_only" else "flag"
        yield _fixed(group, place, True)
        yield _fixed(group, place, False)
    elif place.kind is FLOAT64:
        yield from (_fixed("extreme", place, each) for each in _FLOATS)
    elif place.kind in (BYTES, RECORDS):
        yield from (_fixed("odd bytes", place, each) for each in (b"", b"\0", b"\xff" * 70))


def _shown(path: Path) -> str:
    """Return a path as text: topics[0].name."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return text.removeprefix(".")


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{type(value).__name__} of {len(value)}"
