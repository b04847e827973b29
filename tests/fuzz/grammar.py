"""Requests of every served API and version, with values from pools of usual and hostile values.

The pools are finite, which bounds the topics, groups and producers that successful requests create.
Changes that would affect other clients, such as a default of the whole broker, are requested with
`validate_only`.
"""

from __future__ import annotations

import random
from typing import Any

from barnabas.protocol import schema
from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.schema import Array, Field, Kind, Struct
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from barnabas.server.dispatch.served_apis import served_apis
from fuzz.bombs import Bombs
from fuzz.false_batches import false_batch
from fuzz.patterns import random_pattern

# All APIs of a broker whose optional features are on.
SERVED_APIS = served_apis(has_telemetry=True, has_unstable=True)
TOPICS = [f"fuzz-{number}" for number in range(8)]
# Other clients need this topic, so no request that could change it names it.
INTERNAL_TOPIC = "__consumer_offsets"
GROUPS = [f"fuzz-group-{number}" for number in range(12)] + [""]
ODD_TEXTS = [
    "",
    ".",
    "..",
    "a b",
    "κόσμος",
    "x" * 249,
    "x" * 250,
    "\x00",
    "'; --",
    "__cluster_metadata",
]
CONFIG_NAMES = [
    "retention.ms", "cleanup.policy", "segment.bytes", "compression.type", "max.message.bytes",
    "message.timestamp.type", "min.insync.replicas", "no.such.key", "flush.messages",
    "message.timestamp.after.max.ms", "consumer_byte_rate", "metadata.version", "log.retention.ms",
]  # fmt: skip
CONFIG_VALUES = [
    "",
    "1",
    "-1",
    "delete",
    "compact",
    "gzip",
    "zstd",
    "true",
    "1e9",
    "x" * 500,
    "9" * 30,
]
# Names of fields with topics, groups and configs.
_GROUP_FIELDS = frozenset(
    {"group_id", "groups", "groups_names", "key", "coordinator_keys", "group"}
)
_CONFIG_OWNERS = frozenset(
    {"AlterableConfig", "CreatableTopicConfig", "AlterConfigsConfig", "OpData"}
)
_PRODUCER_IDS = [-1, -1, 0, 1, 2, 3, 1000, 2**62]
_SMALL = [-1, 0, 0, 0, 1, 1, 2, 3, 7]
_LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
# Types of resources that other clients share: configs and log levels of a broker.
_SHARED_RESOURCES = frozenset({4, 8})
# Requests that are sent unchanged or truncated only: a changed bit could affect other clients.
DELICATE = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
    }
)


class Grammar:
    """Generates frames from a seed."""

    def __init__(self, rng: random.Random, node_id: int = 1) -> None:
        self._rng = rng
        self._node_id = node_id
        self._apis = [
            (key, version)
            for key, api in SERVED_APIS.items()
            for version in range(api.first_version, api.last_version + 1)
        ]
        self._correlation_id = 0
        self._bombs = Bombs(rng)
        self._topics = TOPICS

    def frame(self) -> tuple[int, bytes]:
        """Return an API key and a well-formed request with its length."""
        key, version = self._rng.choice(self._apis)
        self._topics = TOPICS if key in DELICATE else [*TOPICS, INTERNAL_TOPIC]
        request = self._struct(request_class(key), version, 0)
        self._tame(key, version, request)
        self._correlation_id += 1
        client_id = self._rng.choice(["fuzz", "", None, "κ" * 20])
        chunks = encode_request(self._correlation_id, client_id, request, version)
        return key, b"".join(bytes(chunk) for chunk in chunks)

    def _struct(self, cls: type[Struct], version: int, depth: int) -> Any:
        values = {
            each.name: self._value(each, each.kind, version, depth)
            if each.is_in(version)
            else each.default()
            for each in cls.__fields__
        }
        return cls(**values)

    def _value(self, each: Field, kind: Any, version: int, depth: int) -> Any:
        rng = self._rng
        if kind is each.kind:
            if each.is_nullable(version) and rng.random() < 0.15:
                return None
            if each.tag is not None and rng.random() < 0.6:
                return each.default()
        if isinstance(kind, Array):
            count = rng.choice([0, 1, 1, 1, 2, 3]) if depth < 3 else 1
            return [self._value(each, kind.element, version, depth + 1) for _ in range(count)]
        if not isinstance(kind, Kind):
            return self._struct(kind, version, depth)
        return self._primitive(each, kind)

    def _primitive(self, each: Field, kind: Kind) -> Any:
        rng = self._rng
        if kind is schema.BOOL:
            return rng.random() < 0.5
        if kind is schema.STRING:
            return self._text(each)
        if kind is schema.UUID:
            return rng.choice([schema.ZERO_UUID, rng.randbytes(16)])
        if kind is schema.FLOAT64:
            return rng.choice([0.0, -1.0, 1e6, 1e308, float("inf"), float("nan")])
        if kind is schema.BYTES:
            return rng.randbytes(rng.choice([0, 1, 20, 200]))
        if kind is schema.RECORDS:
            return self.records()
        return self._number(each.name, kind)

    def _text(self, each: Field) -> str:
        rng = self._rng
        if rng.random() < 0.05:
            return rng.choice(ODD_TEXTS)
        if each.owner in _CONFIG_OWNERS and each.name in {"name", "key"}:
            return rng.choice(CONFIG_NAMES)
        if each.name == "value":
            return rng.choice(CONFIG_VALUES)
        if each.name in _GROUP_FIELDS:
            return rng.choice(GROUPS)
        if each.name in {"member_id", "group_instance_id"}:
            return rng.choice(["", "member-1", "member-2"])
        if each.name in {"protocol_type", "protocol_name"}:
            return rng.choice(["consumer", "range", ""])
        if each.name == "entity_type":
            return rng.choice(["user", "client-id", "ip", "no-such"])
        if each.name in {"subscribed_topic_regex", "transactional_id_pattern"}:
            return random_pattern(rng)
        if each.name == "transactional_id":
            return rng.choice(["fuzz-txn-1", "fuzz-txn-2", ""])
        return rng.choice(self._topics)

    def _number(self, name: str, kind: Kind) -> int:
        rng = self._rng
        low, high = _LIMITS[kind.name]
        if rng.random() < 0.08:
            return rng.choice([low, high, low + 1, high - 1])
        if name in {"max_wait_ms", "timeout_ms"}:
            return rng.choice([0, 1, 20])
        if name == "session_timeout_ms":
            return rng.choice([1, 6000, 10_000])
        if name == "rebalance_timeout_ms":
            return rng.choice([-1, 1, 500])
        if name == "producer_id":
            return rng.choice(_PRODUCER_IDS)
        if name in {"resource_type", "operation", "config_operation", "key_type"}:
            return rng.choice([0, 1, 2, 3, 4, 8, 16, 32, 100])
        if name.endswith("max_bytes"):
            return rng.choice([0, 1, 1000, 1 << 20])
        if name.endswith(("timestamp", "offset")):
            return rng.choice([-5, -4, -3, -2, -1, 0, 1, 5, 100])
        if name == "acks":
            return rng.choice([-1, 0, 1, 1, 2])
        return max(low, rng.choice(_SMALL))

    def records(self) -> bytes:
        """Return a record set: mostly valid batches, some damaged, some of older formats."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.05:
            return self._bombs.any()
        if kind < 0.1:
            return rng.randbytes(rng.choice([0, 1, 12, 61, 300]))
        if kind < 0.15:
            return bytes(false_batch(rng))
        if kind < 0.25:
            made = [Record(i, rng.choice([-1, 1000]), 0, b"k", b"v" * 20, []) for i in range(3)]
            return bytes(write_message_set(rng.choice([0, 1]), made, rng.choice([0, 1, 2, 3])))
        producer_id = rng.choice(_PRODUCER_IDS)
        builder = BatchBuilder(
            base_offset=rng.choice([0, 0, 7]),
            compression=rng.choice([0, 0, 1, 2, 3, 4]),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else rng.choice([0, 0, 1, -1]),
            base_sequence=-1 if producer_id < 0 else rng.choice([0, 1, 2, 5, 2**31 - 1]),
            transactional=rng.random() < 0.05,
            control=rng.random() < 0.03,
        )
        for _ in range(rng.choice([1, 1, 2, 5])):
            key = rng.choice([None, b"", b"key"])
            value = rng.choice([None, b"v" * 10, rng.randbytes(100)])
            builder.append(rng.choice([0, -1, 1000, 2**60]), key, value, [("h", b"x")])
        batch = builder.build()
        if kind < 0.45:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        return bytes(batch)

    def _tame(self, key: int, version: int, request: Any) -> None:
        """Change a request so that it does not change shared settings of the broker."""
        if key in {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}:
            if any(each.resource_type in _SHARED_RESOURCES for each in request.resources):
                request.validate_only = True
        elif key == ApiKey.ALTER_CLIENT_QUOTAS:
            request.validate_only = True
        elif key == ApiKey.UPDATE_FEATURES:
            # Version 0 has no validate_only, but the pools have no existing feature.
            request.validate_only = version > 0
        elif key == ApiKey.UNREGISTER_BROKER and request.broker_id == self._node_id:
            request.broker_id = 77
