"""Places of the core's values in Kafka's messages.

A path names a field of Kafka's message, and of structs in it: `current_leader.leader_id`. A path
that begins with a dot belongs to the metadata partition, which is the only partition of a message.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Array
from barnabas.raft.listener import NO_LEADER
from barnabas.raft.voter_set import Address, ReplicaKey, Voter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.protocol.schema import Message

_FETCH_REPLICA_STATE = 15
# A request that names this key is meant for any voter that receives it.
_NO_VOTER = ReplicaKey(-1)


class UnusableResponseError(ValueError):
    """A response that does not match its request, or that has only an error."""

    def __init__(self, text: str, error: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(text)
        self.error = error


# Messages.


class Envelope(msgspec.Struct, frozen=True):
    """The structs around the metadata partition."""

    # Fields that identify the topic. In a request, one of them is enough.
    topic: Mapping[str, Any]
    topics: str = "topics"
    # Field of the partition with its index.
    index: str = "partition_index"

    def partition_of(self, message: Message) -> Any:
        """Return the metadata partition of a request; None if it has others or no partition."""
        topics = getattr(message, self.topics)
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return None
        if all(getattr(topics[0], name) != value for name, value in self.topic.items()):
            return None
        partition = topics[0].partitions[0]
        return partition if getattr(partition, self.index) == 0 else None

    def only_partition(self, message: Message) -> Any:
        """Return the only partition of a response."""
        partitions = [each for topic in getattr(message, self.topics) for each in topic.partitions]
        if len(partitions) != 1:
            text = f"{type(message).__name__} has {len(partitions)} partitions"
            raise UnusableResponseError(text)
        return partitions[0]


class Reading(NamedTuple):
    """A message from which a core message is made."""

    message: Any
    # None in a message without partitions.
    partition: Any
    # The listener on which this replica is reached.
    listener_name: str

    def get(self, path: str) -> Any:
        """Return the value of a field."""
        if path[0] == ".":
            return attrgetter(path[1:])(self.partition)
        return attrgetter(path)(self.message)


class Draft:
    """A message while it is made from a core message."""

    __slots__ = ("_values", "_within", "advertised", "version")

    def __init__(
        self, layout: Layout, version: int, advertised: Mapping[str, tuple[str, int]]
    ) -> None:
        self.version = version
        # Listeners of this replica.
        self.advertised = advertised
        # Values by field name. A struct, and the only struct of a list, is a dictionary.
        self._values: dict[str, Any] = dict(layout.fixed)
        # Values of the metadata partition.
        self._within: dict[str, Any] = {}
        if layout.envelope is not None:
            self._within[layout.envelope.index] = 0
            topic = {**layout.envelope.topic, "partitions": self._within}
            self._values[layout.envelope.topics] = topic

    def set(self, path: str, value: Any) -> None:
        """Set the value of a field."""
        values = self._within if path[0] == "." else self._values
        *structs, name = path.lstrip(".").split(".")
        for struct in structs:
            values = values.setdefault(struct, {})
        values[name] = value

    def message(self, message_class: type[Message]) -> Message:
        """Return the message."""
        message: Message = _struct(message_class, self._values)
        return message


def _struct(struct_class: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a struct with these values."""
    found = {}
    for each in struct_class.__fields__:
        if each.name not in values:
            continue
        kind, value = each.kind, values[each.name]
        if isinstance(kind, Array) and isinstance(kind.element, type):
            several = [value] if isinstance(value, dict) else value
            value = [_struct(kind.element, item) for item in several]
        elif isinstance(value, dict):
            value = _struct(kind, value)
        found[each.name] = value
    return struct_class(**found)


# Fields.


class Field(Protocol):
    """One or more values of a core message."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values by their names in the core message."""
        ...

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields of a message to the values of a core message."""
        ...


class Values:
    """Values that are the same in both messages."""

    def __init__(self, **paths: str) -> None:
        self._paths = paths

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        return {name: reading.get(path) for name, path in self._paths.items()}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        for name, path in self._paths.items():
            draft.set(path, getattr(value, name))


class Error(Values):
    """The code of an error."""

    def __init__(self, path: str) -> None:
        super().__init__(error=path)

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the error; UNKNOWN_SERVER_ERROR for an unknown code."""
        return {"error": ErrorCode.of(super().read(reading)["error"])}


class Records(Values):
    """The bytes of batches; None is sent as no bytes."""

    def write(self, value: Any, draft: Draft) -> None:
        """Set the field."""
        draft.set(self._paths["records"], b"" if value.records is None else value.records)


class Key:
    """A replica key, which is absent if the node id is negative and the key is optional."""

    def __init__(self, name: str, node_id: str, directory: str, *, optional: bool = False) -> None:
        self._name = name
        self._id = node_id
        self._directory = directory
        self._is_optional = optional

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        key = ReplicaKey(reading.get(self._id), reading.get(self._directory))
        return {self._name: None if self._is_optional and key.id < 0 else key}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        key = getattr(value, self._name) or _NO_VOTER
        draft.set(self._id, key.id)
        draft.set(self._directory, key.directory_id)


class FetchSource(Key):
    """The replica that fetches, and its limit. Its id has another field in new versions."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        node_id = reading.get("replica_state.replica_id")
        if node_id < 0:
            return super().read(reading)
        return {self._name: ReplicaKey(node_id, reading.get(self._directory))}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        has_state = draft.version >= _FETCH_REPLICA_STATE
        draft.set("replica_state.replica_id" if has_state else self._id, value.source.id)
        draft.set(self._directory, value.source.directory_id)
        draft.set(".partition_max_bytes", value.max_bytes)


class EpochEnd:
    """An epoch and an end offset. Without a value the struct keeps its defaults."""

    def __init__(
        self, name: str, path: str, value_class: type[Any], absent: str | None = None
    ) -> None:
        """Create a field.

        Args:
            name: the name of the value.
            path: the path of the struct.
            value_class: the class of the value.
            absent: the field that is negative if there is no value; None if there is always one.
        """
        self._name = name
        self._path = path
        self._value_class = value_class
        self._absent = absent

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        found = reading.get(self._path)
        if self._absent is not None and getattr(found, self._absent) < 0:
            return {self._name: None}
        return {self._name: self._value_class(epoch=found.epoch, end_offset=found.end_offset)}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        found = getattr(value, self._name)
        if found is not None:
            draft.set(f"{self._path}.epoch", found.epoch)
            draft.set(f"{self._path}.end_offset", found.end_offset)


class OwnAddress:
    """The sender's address on the listener of the receiver."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        listeners = dict(_addresses(reading.get("leader_endpoints")))
        return {"address": listeners.get(reading.listener_name)}

    def write(self, _value: Any, draft: Draft) -> None:
        """Set the fields."""
        draft.set("leader_endpoints", _listeners(draft.advertised.items()))


class Candidates:
    """The replicas that may follow the leader. Version 0 has only their ids."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        candidates = [
            ReplicaKey(each.candidate_id, each.candidate_directory_id)
            for each in reading.get(".preferred_candidates")
        ] or [ReplicaKey(each) for each in reading.get(".preferred_successors")]
        return {"preferred_candidates": tuple(candidates)}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        if draft.version == 0:
            ids = [each.id for each in value.preferred_candidates]
            draft.set(".preferred_successors", ids)
            return
        names = ("candidate_id", "candidate_directory_id")
        keys = [dict(zip(names, each, strict=True)) for each in value.preferred_candidates]
        draft.set(".preferred_candidates", keys)


class ChangedVoter:
    """A voter that is added or updated."""

    def __init__(self, *, has_versions: bool) -> None:
        self._has_versions = has_versions

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        key = ReplicaKey(reading.get("voter_id"), reading.get("voter_directory_id"))
        endpoints = tuple(_addresses(reading.get("listeners")))
        if not self._has_versions:
            return {"voter": Voter(key, endpoints)}
        feature = reading.get("kraft_version_feature")
        least, most = feature.min_supported_version, feature.max_supported_version
        return {"voter": Voter(key, endpoints, least, most)}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        voter = value.voter
        draft.set("voter_id", voter.key.id)
        draft.set("voter_directory_id", voter.key.directory_id)
        draft.set("listeners", _listeners(voter.endpoints))
        if self._has_versions:
            draft.set("kraft_version_feature.min_supported_version", voter.min_version)
            draft.set("kraft_version_feature.max_supported_version", voter.max_version)


class Leader:
    """Leader, epoch, and the leader's address, which old versions of a response do not have."""

    def __init__(self, within: str = ".", since: int = 1) -> None:
        """Create a field.

        Args:
            within: begin of the paths of leader and epoch.
            since: first version with the address.
        """
        self._within = within
        self._since = since

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        leader_id = reading.get(f"{self._within}leader_id")
        addresses = (
            Address(each.host, each.port)
            for each in reading.message.node_endpoints
            if each.node_id == leader_id
        )
        return {
            "leader_id": leader_id,
            "epoch": reading.get(f"{self._within}leader_epoch"),
            "leader_address": next(addresses, None),
        }

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        leader_id, at = value.leader_id, value.leader_address
        draft.set(f"{self._within}leader_id", leader_id)
        draft.set(f"{self._within}leader_epoch", value.epoch)
        if draft.version >= self._since and leader_id != NO_LEADER and at is not None:
            endpoint = {"node_id": leader_id, "host": at.host, "port": at.port}
            draft.set("node_endpoints", [endpoint])


class LeaderOfVoterChange:
    """Leader, epoch and address in the response to an update of a voter."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        leader = reading.message.current_leader
        is_known = leader.leader_id != NO_LEADER and leader.port > 0
        return {
            "leader_id": leader.leader_id,
            "epoch": leader.leader_epoch,
            "leader_address": Address(leader.host, leader.port) if is_known else None,
        }

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        host, port = value.leader_address or ("", 0)
        leader = {"leader_id": value.leader_id, "leader_epoch": value.epoch}
        draft.set("current_leader", {**leader, "host": host, "port": port})


class ErrorMessage:
    """The text of an error, which is by default that of its code."""

    def read(self, reading: Reading) -> dict[str, Any]:
        """Return the values."""
        return {"message": reading.message.error_message}

    def write(self, value: Any, draft: Draft) -> None:
        """Set the fields."""
        text = value.message or (value.error.message if value.error else None)
        draft.set("error_message", text)


def _addresses(listeners: Iterable[Any]) -> Iterable[tuple[str, Address]]:
    return ((each.name, Address(each.host, each.port)) for each in listeners)


def _listeners(addresses: Iterable[tuple[str, tuple[str, int]]]) -> list[dict[str, Any]]:
    return [{"name": name, "host": host, "port": port} for name, (host, port) in addresses]


class Layout(msgspec.Struct, frozen=True):
    """A message of Kafka, and the core message with the same content."""

    message: type[Any]
    core: type[Any]
    fields: tuple[Field, ...]
    envelope: Envelope | None = None
    # Fields of the message with the same value in all messages.
    fixed: dict[str, Any] = {}

    def write(self, value: Any, version: int, advertised: Mapping[str, tuple[str, int]]) -> Draft:
        """Return the draft of the message in a version."""
        assert type(value) is self.core, f"{value} for {self.message.__name__}"
        draft = Draft(self, version, advertised)
        for each in self.fields:
            each.write(value, draft)
        return draft

    def read(self, reading: Reading, **others: Any) -> Any:
        """Return the core message."""
        values = others
        for each in self.fields:
            values.update(each.read(reading))
        return self.core(**values)
