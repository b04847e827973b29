"""One transactional id on both brokers: its requests, and the visible state of its transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.response import Flat, flatten
from differential.scene import POLL_S, batch, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.scene import Scene
    from differential.side import Side

    Make = Callable[[Side], Values]

INIT, END = ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN
ADD, ADD_OFFSETS = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN
COMMIT_OFFSETS, PRODUCE = ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE
DESCRIBE, LIST = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS
MARKERS, PRODUCERS = ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS
FETCH, LIST_OFFSETS = ApiKey.FETCH, ApiKey.LIST_OFFSETS
OFFSET_COMMIT, OFFSET_DELETE = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE
DELETE_GROUPS = ApiKey.DELETE_GROUPS
OFFSET_FETCH, DELETE_RECORDS = ApiKey.OFFSET_FETCH, ApiKey.DELETE_RECORDS

# The names of the producer of the id, and of a producer of another id.
OWN, FOREIGN = "producer", "foreign producer"
PARTITIONS = (0, 1)
# Long enough that no transaction times out, unless a case tests that.
TIMEOUT_MS = 900_000
READ_COMMITTED = 1
# How long to wait for markers that the leader may refuse.
BLOCKED_MARKERS_WAIT_S = 0.05
# The last versions of clients that add each partition to the transaction by a request.
EXPLICIT_PRODUCE, EXPLICIT_COMMIT, EXPLICIT_END = 11, 4, 4
# The first versions of clients of transaction version 2 (KIP-890).
IMPLICIT_PRODUCE, IMPLICIT_COMMIT, IMPLICIT_END = 13, 5, 5
_PREPARED = ("PrepareCommit", "PrepareAbort")


@dataclass
class Transaction:
    """A transactional id, and the state of its producer."""

    id: str
    topic: str
    group: str
    # The log end offset of each partition before the case.
    starts: tuple[int, ...]
    # Epoch of the last response to the producer.
    epoch: int = 0
    # The next sequence number for partition 0.
    sequence: int = 0
    # Whether the end of the transaction is decided, but its markers may never be accepted.
    has_blocked_markers: bool = False

    def producer_fields(self, delta: int = 0, producer: str = OWN) -> Make:
        """Return the fields that identify the producer, with its epoch plus `delta`."""
        return lambda side: {
            "transactional_id": self.id,
            "producer_id": side[producer],
            "producer_epoch": self.epoch + delta,
        }

    def init(self, timeout_ms: int = TIMEOUT_MS) -> Values:
        """Return an InitProducerId of a new producer."""
        return {"transactional_id": self.id, "transaction_timeout_ms": timeout_ms}

    def continue_producer(self, delta: int = 0, producer: str = OWN) -> Make:
        """Return an InitProducerId of a producer that continues (KIP-360)."""
        producer_fields = self.producer_fields(delta, producer)
        return lambda side: {**producer_fields(side), "transaction_timeout_ms": TIMEOUT_MS}

    def add(
        self,
        *partitions: int,
        delta: int = 0,
        producer: str = OWN,
        verify: bool = False,
        others: tuple[str, ...] = (),
    ) -> Make:
        """Return an AddPartitionsToTxn; `others` are more topics."""
        producer_fields = self.producer_fields(delta, producer)
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        topics += [{"name": name, "partitions": [0]} for name in others]

        def values(side: Side) -> Values:
            named = producer_fields(side)
            old = {f"v3_and_below_{key}": value for key, value in named.items()}
            new = [{**named, "verify_only": verify, "topics": topics}]
            return {"transactions": new, **old, "v3_and_below_topics": topics}

        return values

    def add_offsets(self, delta: int = 0, producer: str = OWN) -> Make:
        """Return an AddOffsetsToTxn of the group."""
        producer_fields = self.producer_fields(delta, producer)
        return lambda side: {**producer_fields(side), "group_id": self.group}

    def commit_offset(self, delta: int = 0, producer: str = OWN, **more: Any) -> Make:
        """Return a TxnOffsetCommit; `more` are fields of the request."""
        producer_fields = self.producer_fields(delta, producer)
        partition = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_leader_epoch": 0,
            "committed_metadata": "note",
        }

        def values(side: Side) -> Values:
            named = {"name": self.topic, "topic_id": side.topic_id(self.topic)}
            fields = {"generation_id_or_member_epoch": -1, "member_id": "", **more}
            topics = [{**named, "partitions": [partition]}]
            return {**producer_fields(side), "group_id": self.group, "topics": topics, **fields}

        return values

    def commit_outside(self, **more: Any) -> Values:
        """Return an OffsetCommit outside of the transaction; `more` are fields of the request."""
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "outside"}
        topics = [{"name": self.topic, "partitions": [partition]}]
        return {"group_id": self.group, "topics": topics, **more}

    def delete_offset(self) -> Values:
        """Return an OffsetDelete of the offset of the group."""
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0}]}]
        return {"group_id": self.group, "topics": topics}

    def end(self, delta: int = 0, producer: str = OWN, *, commit: bool) -> Make:
        """Return an EndTxn."""
        producer_fields = self.producer_fields(delta, producer)
        return lambda side: {**producer_fields(side), "committed": commit}

    def produce(
        self, partition: int = 0, delta: int = 0, sequence: int | None = None, **more: Any
    ) -> Make:
        """Return a Produce of one record; `more` are fields of the batch or `transactional_id`."""
        producer = more.pop("producer", OWN)
        transactional_id = more.pop("transactional_id", self.id)
        fields: dict[str, Any] = {"transactional": True, "producer_epoch": self.epoch + delta}
        fields |= more
        if sequence is None:
            sequence = self.sequence if partition == 0 and delta == 0 else 0

        def values(side: Side) -> Values:
            records = batch(b"record", producer_id=side[producer], base_sequence=sequence, **fields)
            data = [{"index": partition, "records": records}]
            topic = {"name": self.topic, "topic_id": side.topic_id(self.topic)}
            return {
                "transactional_id": transactional_id,
                "acks": -1,
                "timeout_ms": 5000,
                "topic_data": [{**topic, "partition_data": data}],
            }

        return values

    def markers(
        self,
        coordinator_epoch: int,
        delta: int = 0,
        *,
        commit: bool,
        version: int = 0,
        producer: str = OWN,
    ) -> Make:
        """Return a WriteTxnMarkers for partition 0."""
        return lambda side: {
            "markers": [
                {
                    "producer_id": side[producer],
                    "producer_epoch": self.epoch + delta,
                    "transaction_result": commit,
                    "topics": [{"name": self.topic, "partition_indexes": [0]}],
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": version,
                }
            ]
        }

    def fetch(self, isolation: int = READ_COMMITTED, session_epoch: int = -1) -> Make:
        """Return a Fetch of the records of the case."""
        partitions = [
            {"partition": index, "fetch_offset": start, "partition_max_bytes": 1 << 20}
            for index, start in zip(PARTITIONS, self.starts, strict=True)
        ]
        return lambda side: {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "isolation_level": isolation,
            "session_epoch": session_epoch,
            "topics": [
                {
                    "topic": self.topic,
                    "topic_id": side.topic_id(self.topic),
                    "partitions": partitions,
                }
            ],
        }

    def ends(self, isolation: int = READ_COMMITTED, timestamp: int = -1) -> Values:
        """Return a ListOffsets of both partitions."""
        return _list_offsets(self.topic, isolation, timestamp)

    def offsets(self, *, stable: bool = True, everything: bool = True) -> Make:
        """Return an OffsetFetch of the group."""

        def values(side: Side) -> Values:
            topics = None
            if not everything:
                named = {"name": self.topic, "topic_id": side.topic_id(self.topic)}
                topics = [{**named, "partition_indexes": [0, 1]}]
            old = None if everything else [{"name": self.topic, "partition_indexes": [0, 1]}]
            groups = [{"group_id": self.group, "topics": topics}]
            return {
                "group_id": self.group,
                "topics": old,
                "groups": groups,
                "require_stable": stable,
            }

        return values

    def producers(self) -> Values:
        """Return a DescribeProducers of both partitions."""
        return {"topics": [{"name": self.topic, "partition_indexes": list(PARTITIONS)}]}

    def delete_records(self, ahead: int) -> Values:
        """Return a DeleteRecords of that many records of the case; -1 is the high watermark."""
        offset = self.starts[0] + ahead if ahead >= 0 else ahead
        cut = [{"partition_index": 0, "offset": offset}]
        return {"topics": [{"name": self.topic, "partitions": cut}], "timeout_ms": 5000}


def _list_offsets(topic: str, isolation: int, timestamp: int = -1) -> Values:
    requested = [{"partition_index": index, "timestamp": timestamp} for index in PARTITIONS]
    return {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": topic, "partitions": requested}],
        "timeout_ms": 5000,
    }


def state_of(side: Side, transactional_id: str) -> str:
    """Return the state that the coordinator describes; empty for an unknown id."""
    requested = {"transactional_ids": [transactional_id]}
    state: str = exchange(side, DESCRIBE, 0, requested).transaction_states[0].transaction_state
    return state


def partitions_of(side: Side, transactional_id: str) -> list[int]:
    """Return the partitions of all topics that the coordinator describes."""
    requested = {"transactional_ids": [transactional_id]}
    topics = exchange(side, DESCRIBE, 0, requested).transaction_states[0].topics
    return [partition for topic in topics for partition in topic.partitions]


def settle(scene: Scene, transaction: Transaction) -> None:
    """Wait until all markers that leaders accept are written."""
    if not transaction.has_blocked_markers:
        scene.until(lambda side: state_of(side, transaction.id) not in _PREPARED)
        return
    deadline = time.monotonic() + BLOCKED_MARKERS_WAIT_S
    while _is_ending(scene, transaction) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _is_ending(scene: Scene, transaction: Transaction) -> bool:
    states = [state_of(side, transaction.id) for side in scene.pair.sides()]
    return any(state in _PREPARED for state in states)


def new_transaction(scene: Scene) -> Transaction:
    """Return a new transactional id, with a topic whose earlier transactions have ended."""
    topic, starts = _quiet_topic(scene)
    scene.pair.transactions += 1
    number = scene.pair.transactions
    # Names of scenes are truncated, so that two cases may have the same name.
    made = Transaction(f"transaction-{number}", topic, f"group-of-transaction-{number}", starts)
    for name in (OWN, FOREIGN):
        scene.producer(name)
    return made


def _quiet_topic(scene: Scene) -> tuple[str, tuple[int, ...]]:
    """Return a topic with equal ends on both brokers and without open transactions."""
    if scene.pair.quiet_topic is not None:
        topic, ids = scene.pair.quiet_topic
        scene.remember(f"id of {topic}", *ids)
        found = _ends(scene, topic)
        if len(found) == 1 and None not in (starts := found.pop()):
            return topic, starts
    topic = scene.topic(len(PARTITIONS))
    scene.pair.quiet_topic = topic, [side.topic_id(topic) for side in scene.pair.sides()]
    return topic, (0,) * len(PARTITIONS)


def starts_of(scene: Scene, topic: str) -> tuple[int, ...]:
    """Return the ends of both partitions, which are equal on both brokers."""
    (found,) = _ends(scene, topic)
    return found


def _ends(scene: Scene, topic: str) -> set[tuple[Any, ...]]:
    return {_end_offsets(side, topic, level) for side in scene.pair.sides() for level in (0, 1)}


def _end_offsets(side: Side, topic: str, isolation: int) -> tuple[Any, ...]:
    response = exchange(side, LIST_OFFSETS, 5, _list_offsets(topic, isolation))
    found = sorted(response.topics[0].partitions, key=lambda each: each.partition_index)
    return tuple(None if each.error_code else each.offset for each in found)


def compare_state(scene: Scene, transaction: Transaction) -> None:
    """Compare the visible state of a transaction, without requests that wait for its end."""
    settle(scene, transaction)
    scene.note(*(_seen(side, transaction) for side in scene.pair.sides()))


def _seen(side: Side, transaction: Transaction) -> Flat:
    found: Flat = {}
    requested: tuple[tuple[ApiKey, int, Values], ...] = (
        (DESCRIBE, 0, {"transactional_ids": [transaction.id]}),
        (LIST_OFFSETS, 5, transaction.ends()),
        (LIST_OFFSETS, 5, transaction.ends(0)),
        (FETCH, 12, transaction.fetch()(side)),
        (PRODUCERS, 0, transaction.producers()),
        (OFFSET_FETCH, 7, transaction.offsets()(side)),
    )
    for number, (api, version, values) in enumerate(requested):
        response = exchange(side, api, version, values)
        if api is PRODUCERS:
            own_producers_only(response, side)
        if api is FETCH:
            _below_the_last_stable_offset(response)
        for path, value in flatten(response, version, side).items():
            found[f"{number} {path}"] = value
    return found


def _below_the_last_stable_offset(response: Any) -> None:
    """Remove aborted transactions above all records of the response.

    Kafka includes transactions up to the next entry of its sparse index.
    """
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.aborted_transactions:
                partition.aborted_transactions[:] = [
                    each
                    for each in partition.aborted_transactions
                    if each.first_offset < partition.last_stable_offset
                ]


def own_producers_only(response: Any, side: Side) -> None:
    """Remove the producers of other cases from a DescribeProducers response."""
    own = set(side.named_values().values())
    for topic in response.topics:
        for partition in topic.partitions:
            partition.active_producers[:] = [
                each for each in partition.active_producers if each.producer_id in own
            ]


def initialize(scene: Scene, transaction: Transaction, build: Values | Make | None = None) -> None:
    """Get a producer id from both brokers, after the abort of an open transaction."""
    responses = []
    for side in scene.pair.sides():
        values = transaction.init() if build is None else build
        if callable(values):
            values = values(side)
        responses.append(_initialized(scene, side, transaction, values))
    assert responses[0].producer_epoch == responses[1].producer_epoch, responses
    scene.remember(OWN, *(response.producer_id for response in responses))
    transaction.epoch, transaction.sequence = responses[0].producer_epoch, 0


def _initialized(scene: Scene, side: Side, transaction: Transaction, values: Values) -> Any:
    response = exchange(side, INIT, 4, values)
    if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        settle(scene, transaction)
        response = exchange(side, INIT, 4, values)
    assert response.error_code == ErrorCode.NONE, f"{side.name}: {response}"
    return response


def finish(scene: Scene, transaction: Transaction) -> None:
    """Compare the responses to the next producer of the id, which ends an open transaction."""
    for _ in range(2):
        scene.compare(transaction.init(), INIT, 4)
        settle(scene, transaction)
    compare_state(scene, transaction)
