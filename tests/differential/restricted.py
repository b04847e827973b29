"""Two Barnabas brokers with the same resources, for clients with no login or few permissions.

`Scene` and the matrix create the same resources on two sides. Here both sides are Barnabas, so that
these tests do not need Apache Kafka. `test_secured` compares the same requests with Kafka.

Resources that a request names begin with `HIDDEN`. The names of planted resources, which no request
contains, begin with `PLANTED`: topic, group, transactional id, user, client, member and record. No
response may contain the bytes of these names.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import ec

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import encode_request
from differential.broker_pair import SETTINGS
from differential.matrix import objects
from differential.matrix.objects import resolved
from differential.request import request
from differential.scene import Pair, Scene, batch, exchange
from differential.secured import SecuredSide, all_entries, create, entry
from differential.warm_up import warm_up
from fuzz.secured_broker import SecuredBroker
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from differential.side import Side

HIDDEN, ABSENT = "hidden", "absent"
PLANTED = "planted"
TOPIC, GROUP, ID = f"{PLANTED}-topic", f"{PLANTED}-group", f"{PLANTED}-id"
# The id of an absent topic.
ABSENT_ID = bytes(range(200, 216))
_TOPIC_RESOURCE = 2
_SETTINGS = {
    **SETTINGS,
    "super.users": "User:alice",
    "allow.everyone.if.no.acl.found": "true",
    "connection.failed.authentication.delay.ms": "0",
    # The metadata log contains only changes.
    "metadata.max.idle.interval.ms": "0",
}


class RestrictedPair(Pair):
    """The two sides with their processes."""

    brokers: tuple[SecuredBroker, SecuredBroker]


@contextlib.contextmanager
def started_restricted_pair(directory: Path) -> Iterator[RestrictedPair]:
    """Run both brokers with the ACLs of `secured` and the planted objects.

    Args:
        directory: contains the directories of both brokers.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    brokers = [SecuredBroker(directory / name, key, _SETTINGS) for name in ("one", "other")]
    try:
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.await_ready()
        sides = [SecuredSide(broker.directory.name, broker.bootstrap) for broker in brokers]
        made = RestrictedPair(*sides)
        made.brokers = brokers[0], brokers[1]
        entries = [*all_entries(), {**entry("*", _TOPIC_RESOURCE), "principal": f"User:{PLANTED}"}]
        for side in made.sides():
            create(side, entries)
        warm_up(made)
        plant(made)
        yield made
        made.close()
    finally:
        for broker in brokers:
            broker.close()


class _PlantingScene(Scene):
    """A scene whose names are those of planted resources."""

    def name(self, what: str = "topic") -> str:
        """Return the name of the planted resource of a kind."""
        return f"{PLANTED}-{what}"


def plant(pair: Pair) -> None:
    """Create the objects that no request may find."""
    scene = _PlantingScene(pair, ApiKey.METADATA, PLANTED, 0)
    name = scene.topic(1, retention_ms="918273645")
    scene.produce(name, batch(f"{PLANTED}-record".encode()))
    objects.new_group(scene, name, instance=f"{PLANTED}-instance")
    started = {"transactional_id": ID, "transaction_timeout_ms": objects.TRANSACTION_MS}
    responses = scene.do(ApiKey.INIT_PRODUCER_ID, 4, started)
    scene.remember("planted producer", *(response.producer_id for response in responses))
    added = {
        "v3_and_below_transactional_id": ID,
        "v3_and_below_producer_id": objects.value_of("planted producer"),
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]}],
    }
    scene.do(ApiKey.ADD_PARTITIONS_TO_TXN, 3, lambda side: resolved(added, side))
    entity = [{"entity_type": "client-id", "entity_name": f"{PLANTED}-client"}]
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    scene.do(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [{"entity": entity, "ops": ops}]})
    user = {
        "name": f"{PLANTED}-user",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": bytes(32),
    }
    scene.do(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [user]})
    # All planted objects exist.
    for side in pair.sides():
        eventually(partial(_is_planted, side), side.name)


def _is_planted(side: Side) -> bool:
    groups = exchange(side, ApiKey.LIST_GROUPS, 4, {}).groups
    ids = exchange(side, ApiKey.LIST_TRANSACTIONS, 0, {}).transaction_states
    users = exchange(side, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}).results
    names = {each.group_id for each in groups}
    names |= {each.transactional_id for each in ids} | {each.user for each in users}
    return {GROUP, ID, f"{PLANTED}-user"} <= names


def frame_of(api: ApiKey, version: int, values: dict[str, Any], side: Side) -> bytes:
    """Return the bytes of a request, with the length."""
    made = request(api, version, resolved(values, side))
    return b"".join(bytes(chunk) for chunk in encode_request(1, "client", made, version))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return values with each string and each bytes object changed."""
    if isinstance(value, dict):
        return {key: replaced(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, change) for each in value]
    return change(value) if isinstance(value, str | bytes) else value


def twin(values: Any, topic_ids: set[bytes]) -> Any:
    """Return the same request with absent resources.

    Args:
        values: the resolved values of the request.
        topic_ids: ids of existing topics.
    """

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(HIDDEN, ABSENT)
        return ABSENT_ID if value in topic_ids else value

    return replaced(values, change)


def state_of(side: Side) -> dict[str, int]:
    """Return the end offsets of the metadata log and of all partitions."""
    partitions = [{"partition_index": 0}]
    quorum = {"topics": [{"topic_name": "__cluster_metadata", "partitions": partitions}]}
    found = exchange(side, ApiKey.DESCRIBE_QUORUM, 1, quorum).topics[0].partitions[0]
    state = {"metadata": found.high_watermark}
    topics = exchange(side, ApiKey.METADATA, 9, {"topics": None}).topics
    requested = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, "timestamp": -1}
                for each in topic.partitions
            ],
        }
        for topic in topics
    ]
    ends = exchange(side, ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": requested})
    for topic in ends.topics:
        for each in topic.partitions:
            state[f"{topic.name}-{each.partition_index}"] = each.offset
    return state
