"""One transactional id on both brokers: its requests, and the visible facts of its transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.answer import Flat, flatten
from differential.scene import POLL_S, ask, batch

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
OFFSET_FETCH, DELETE_RECORDS = ApiKey.OFFSET_FETCH, ApiKey.DELETE_RECORDS

# The case's names of the id's own producer, and of one of another id.
OWN, FOREIGN = "producer", "foreign producer"
PARTITIONS = (0, 1)
# No transaction ends by its timeout, unless a case is about that.
TIMEOUT_MS = 900_000
READ_COMMITTED = 1
# How long markers that may be refused are waited for.
HELD_S = 0.05
# The last versions of clients that add each partition to the transaction themselves.
EXPLICIT_PRODUCE, EXPLICIT_COMMIT, EXPLICIT_END = 11, 4, 4
# The first versions of clients of transaction version 2 (KIP-890).
IMPLICIT_PRODUCE, IMPLICIT_COMMIT, IMPLICIT_END = 13, 5, 5
_PREPARED = ("PrepareCommit", "PrepareAbort")


@dataclass
class Transaction:
    """A transactional id, and what its producer knows."""

    id: str
    topic: str
    group: str
    # The log end offset of each partition before the case.
    starts: tuple[int, ...]
    # Epoch of the last response to the producer.
    epoch: int = 0
    # The next sequence number for partition 0.
    sequence: int = 0
    # Whether the end of the transaction is decided, and may never be completed.
    is_held: bool = False

    def who(self, delta: int = 0, producer: str = OWN) -> Make:
        """The fields that name the producer, with its epoch plus `delta`."""
        return lambda side: {
            "transactional_id": self.id,
            "producer_id": side[producer],
            "producer_epoch": self.epoch + delta,
        }

    def init(self, timeout_ms: int = TIMEOUT_MS) -> Values:
        """An InitProducerId of a new producer."""
        return {"transactional_id": self.id, "transaction_timeout_ms": timeout_ms}

    def go_on(self, delta: int = 0, producer: str = OWN) -> Make:
        """An InitProducerId of a producer that continues (KIP-360)."""
        who = self.who(delta, producer)
        return lambda side: {**who(side), "transaction_timeout_ms": TIMEOUT_MS}

    def add(
        self,
        *partitions: int,
        delta: int = 0,
        producer: str = OWN,
        verify: bool = False,
        others: tuple[str, ...] = (),
    ) -> Make:
        """An AddPartitionsToTxn; `others` are more topics."""
        who = self.who(delta, producer)
        topics = [{"name": self.topic, "partitions": list(partitions)}]
        topics += [{"name": name, "partitions": [0]} for name in others]

        def values(side: Side) -> Values:
            named = who(side)
            old = {f"v3_and_below_{key}": value for key, value in named.items()}
            new = [{**named, "verify_only": verify, "topics": topics}]
            return {"transactions": new, **old, "v3_and_below_topics": topics}

        return values

    def add_offsets(self, delta: int = 0, producer: str = OWN) -> Make:
        """An AddOffsetsToTxn of the group."""
        who = self.who(delta, producer)
        return lambda side: {**who(side), "group_id": self.group}

    def commit_offset(self, delta: int = 0, producer: str = OWN, **more: Any) -> Make:
        """A TxnOffsetCommit; `more` are fields of the request."""
        who = self.who(delta, producer)
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
            return {**who(side), "group_id": self.group, "topics": topics, **fields}

        return values

    def end(self, delta: int = 0, producer: str = OWN, *, commit: bool) -> Make:
        """An EndTxn."""
        who = self.who(delta, producer)
        return lambda side: {**who(side), "committed": commit}

    def produce(
        self, partition: int = 0, delta: int = 0, sequence: int | None = None, **more: Any
    ) -> Make:
        """A Produce of one record; `more` are fields of the batch or `transactional_id`."""
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
        """A WriteTxnMarkers into partition 0."""
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
        """A Fetch of the records of the case."""
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
        """A ListOffsets of both partitions."""
        return _list_offsets(self.topic, isolation, timestamp)

    def offsets(self, *, stable: bool = True, everything: bool = True) -> Make:
        """An OffsetFetch of the group."""

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
        """A DescribeProducers of both partitions."""
        return {"topics": [{"name": self.topic, "partition_indexes": list(PARTITIONS)}]}

    def delete_records(self, ahead: int) -> Values:
        """A DeleteRecords up to that many records of the case; -1 is the high watermark."""
        offset = self.starts[0] + ahead if ahead >= 0 else ahead
        cut = [{"partition_index": 0, "offset": offset}]
        return {"topics": [{"name": self.topic, "partitions": cut}], "timeout_ms": 5000}


def _list_offsets(topic: str, isolation: int, timestamp: int = -1) -> Values:
    asked = [{"partition_index": index, "timestamp": timestamp} for index in PARTITIONS]
    return {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": topic, "partitions": asked}],
        "timeout_ms": 5000,
    }


def state_of(side: Side, transactional_id: str) -> str:
    """The state that the coordinator tells; empty for an unknown id."""
    asked = {"transactional_ids": [transactional_id]}
    state: str = ask(side, DESCRIBE, 0, asked).transaction_states[0].transaction_state
    return state


def partitions_of(side: Side, transactional_id: str) -> list[int]:
    """The partitions that the coordinator tells, of all topics."""
    asked = {"transactional_ids": [transactional_id]}
    topics = ask(side, DESCRIBE, 0, asked).transaction_states[0].topics
    return [partition for topic in topics for partition in topic.partitions]


def settle(scene: Scene, transaction: Transaction) -> None:
    """Wait until markers that can be written are written."""
    if not transaction.is_held:
        scene.until(lambda side: state_of(side, transaction.id) not in _PREPARED)
        return
    deadline = time.monotonic() + HELD_S
    while _is_ending(scene, transaction) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _is_ending(scene: Scene, transaction: Transaction) -> bool:
    states = [state_of(side, transaction.id) for side in scene.pair.sides()]
    return any(state in _PREPARED for state in states)


def new_transaction(scene: Scene) -> Transaction:
    """A new id, in a topic whose earlier transactions have ended."""
    topic, starts = _quiet_topic(scene)
    scene.pair.transactions += 1
    number = scene.pair.transactions
    # Names of scenes are cut: those of two cases may be the same.
    made = Transaction(f"transaction-{number}", topic, f"group-of-transaction-{number}", starts)
    for name in (OWN, FOREIGN):
        scene.producer(name)
    return made


def _quiet_topic(scene: Scene) -> tuple[str, tuple[int, ...]]:
    """A topic that both have alike, with no open transaction; a new one if need be."""
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
    """The ends of both partitions, which are the same on both."""
    (found,) = _ends(scene, topic)
    return found


def _ends(scene: Scene, topic: str) -> set[tuple[Any, ...]]:
    return {_end_offsets(side, topic, level) for side in scene.pair.sides() for level in (0, 1)}


def _end_offsets(side: Side, topic: str, isolation: int) -> tuple[Any, ...]:
    answer = ask(side, LIST_OFFSETS, 5, _list_offsets(topic, isolation))
    found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    return tuple(None if each.error_code else each.offset for each in found)


def look(scene: Scene, transaction: Transaction) -> None:
    """Compare all visible facts of a transaction, except the requests that wait for its end."""
    settle(scene, transaction)
    scene.note(*(_seen(side, transaction) for side in scene.pair.sides()))


def _seen(side: Side, transaction: Transaction) -> Flat:
    found: Flat = {}
    asked: tuple[tuple[ApiKey, int, Values], ...] = (
        (DESCRIBE, 0, {"transactional_ids": [transaction.id]}),
        (LIST_OFFSETS, 5, transaction.ends()),
        (LIST_OFFSETS, 5, transaction.ends(0)),
        (FETCH, 12, transaction.fetch()(side)),
        (PRODUCERS, 0, transaction.producers()),
        (OFFSET_FETCH, 7, transaction.offsets()(side)),
    )
    for number, (api, version, values) in enumerate(asked):
        answer = ask(side, api, version, values)
        if api is PRODUCERS:
            own_producers_only(answer, side)
        if api is FETCH:
            _below_the_last_stable_offset(answer)
        for path, value in flatten(answer, version, side).items():
            found[f"{number} {path}"] = value
    return found


def _below_the_last_stable_offset(answer: Any) -> None:
    """Take out aborted transactions above all records of the answer.

    Kafka tells them as far as its sparse index reaches, perhaps to the end of the log.
    """
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.aborted_transactions:
                partition.aborted_transactions[:] = [
                    each
                    for each in partition.aborted_transactions
                    if each.first_offset < partition.last_stable_offset
                ]


def own_producers_only(answer: Any, side: Side) -> None:
    """Take the producers of other cases out of a DescribeProducers answer."""
    own = set(side.drawn().values())
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.active_producers[:] = [
                each for each in partition.active_producers if each.producer_id in own
            ]


def initialize(scene: Scene, transaction: Transaction, build: Values | Make | None = None) -> None:
    """Get a producer id on both, when open transactions have been aborted for it."""
    answers = []
    for side in scene.pair.sides():
        values = transaction.init() if build is None else build
        if callable(values):
            values = values(side)
        answers.append(_initialized(scene, side, transaction, values))
    assert answers[0].producer_epoch == answers[1].producer_epoch, answers
    scene.remember(OWN, *(answer.producer_id for answer in answers))
    transaction.epoch, transaction.sequence = answers[0].producer_epoch, 0


def _initialized(scene: Scene, side: Side, transaction: Transaction, values: Values) -> Any:
    answer = ask(side, INIT, 4, values)
    if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        settle(scene, transaction)
        answer = ask(side, INIT, 4, values)
    assert answer.error_code == ErrorCode.NONE, f"{side.name}: {answer}"
    return answer


def finish(scene: Scene, transaction: Transaction) -> None:
    """Compare the response to the next producer of the id; no transaction stays open."""
    for _ in range(2):
        scene.compare(transaction.init(), INIT, 4)
        settle(scene, transaction)
    look(scene, transaction)
