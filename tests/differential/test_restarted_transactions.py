"""Transactions across restarts of both brokers, which load them from their records.

Random walks continue after a restart, and then their ids expire. Another test exhausts epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.codec import encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.records.coordinator_logs import TransactionLogKey, TransactionLogValue
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from differential.broker_pair import SETTINGS
from differential.internal_records import (
    TRANSACTION_TOPIC,
    differing,
    offsets,
    stored,
    transactions,
)
from differential.request import request
from differential.response import read_response
from differential.scene import NOW_MS, Pair, Scene, exchange
from differential.side import Side
from differential.transaction import (
    COMMIT_OFFSETS,
    DELETE_GROUPS,
    END,
    EXPLICIT_END,
    IMPLICIT_COMMIT,
    IMPLICIT_END,
    INIT,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OWN,
    PRODUCE,
    Transaction,
    compare_state,
    initialize,
    settle,
    state_of,
)
from differential.transaction_walks import STEPS, Walk, random_steps
from differential.warm_up import warm_up
from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from differential.request import Values

    Build = Values | Callable[[Side], Values]

pytestmark = pytest.mark.conformance

WALKS = 4
OFFSET_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
STATE_PARTITIONS = int(SETTINGS["transaction.state.log.num.partitions"])
# The last epoch that a client may get.
LAST_EPOCH = 0x7FFE
ENDINGS = ("begins", "is fenced", "commits", "aborts")
EXPIRES = {
    "transactional.id.expiration.ms": "1",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


class Restarted:
    """Both brokers, which can restart on their directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[KafkaProcess | BrokerProcess] = []
        self.start({})
        kafka, ours = self.addresses()
        self.pair = Pair(Side("kafka", kafka), Side("barnabas", ours))
        warm_up(self.pair)

    def start(self, settings: dict[str, str]) -> None:
        """Start both brokers with additional settings."""
        together = {**SETTINGS, **settings}
        kafka = KafkaProcess(self._directory / "kafka", together)
        ours = BrokerProcess(self._directory / "barnabas", together)
        self._processes = [kafka, ours]
        kafka.launch()
        ours.start()
        kafka.await_ready()

    def addresses(self) -> list[str]:
        return [each.bootstrap for each in self._processes]

    def again(self, settings: dict[str, str]) -> None:
        """Restart both brokers with additional settings."""
        for each in self._processes:
            each.stop()
        self.start(settings)
        for side, address in zip(self.pair.sides(), self.addresses(), strict=True):
            side.move(address)
        warm_up(self.pair)

    def close(self) -> None:
        self.pair.close()
        for each in self._processes:
            each.close()


@pytest.fixture
def restarted(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Restarted]:
    made = Restarted(tmp_path_factory.mktemp("restarted"))
    yield made
    made.close()


def check(scene: Scene) -> None:
    found = list(scene.unexpected({}, set()))
    assert not found, "\n".join(found)


def check_records(pair: Pair, ids: list[str]) -> None:
    kafka, ours = (transactions(side, ids, STATE_PARTITIONS) for side in pair.sides())
    different = differing(kafka, ours)
    assert not different, f"\n{different}"


@pytest.mark.nightly
def test_walks_continue_after_a_restart_and_ids_expire(restarted: Restarted) -> None:
    pair = restarted.pair
    scene = Scene(pair, END, "restarted", 4)
    walks = [Walk(pair, f"restarted-{number}", scene) for number in range(WALKS)]
    steps = [random_steps(f"restarted-{number}", 2 * STEPS) for number in range(WALKS)]
    for walk, of_walk in zip(walks, steps, strict=True):
        assert not walk.go(of_walk[:STEPS]), walk.go([])
    restarted.again({})
    for walk, of_walk in zip(walks, steps, strict=True):
        found = walk.go(of_walk[STEPS:])
        assert not found, "\n".join(found)
    for walk in walks[1:]:
        found = walk.end()
        assert not found, "\n".join(found)
    # One transaction stays open, so that its id does not expire.
    (still_open, _) = walks[0].transactions
    initialize(scene, still_open)
    scene.compare(still_open.produce(), PRODUCE, 13)
    ids = [transaction.id for walk in walks for transaction in walk.transactions]
    check_records(pair, ids)
    restarted.again(EXPIRES)
    for each in ids:
        expected = "Ongoing" if each == still_open.id else ""
        scene.until(lambda side, name=each, state=expected: state_of(side, name) == state)
    check_records(pair, ids)
    scene.compare(still_open.end(commit=True), END, IMPLICIT_END)
    scene.until(lambda side: state_of(side, still_open.id) == "")
    check_records(pair, ids)
    check(scene)


def write_epoch(side: Side, transaction: Transaction, epoch: int) -> None:
    """Write the record of an empty transactional id with this epoch."""
    (partition,) = {
        each.partition
        for each in stored(side, TRANSACTION_TOPIC, STATE_PARTITIONS)
        if transaction.id.encode() in each.key
    }
    value = TransactionLogValue(
        producer_id=side.number(OWN),
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=NOW_MS,
        transaction_start_timestamp_ms=-1,
    )
    builder = BatchBuilder()
    key = encode_coordinator_key(TransactionLogKey(transactional_id=transaction.id))
    builder.append(NOW_MS, key, encode_coordinator_value(value, 1))
    data = [{"index": partition, "records": bytes(builder.build())}]
    values = {
        "acks": -1,
        "timeout_ms": 5_000,
        "topic_data": [{"name": TRANSACTION_TOPIC, "partition_data": data}],
    }
    chunks = encode_request(1, "__admin_client", request(PRODUCE, 9, values), 9)
    side.send_bytes(b"".join(bytes(chunk) for chunk in chunks))
    outcome = side.receive()
    assert isinstance(outcome, bytes), outcome
    response: Any = read_response(PRODUCE, 9, outcome)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE, response


def exhaust(scene: Scene, transaction: Transaction, version: int, ending: str) -> None:
    """Use a transactional id beyond its last epoch, where a new producer id begins."""
    for _ in range(5):
        take_over(scene, transaction, transaction.init())
        if ending == "begins":
            continue
        scene.compare(transaction.produce(), PRODUCE, 13 if version >= IMPLICIT_END else 11)
        if ending != "is fenced":
            for _ in range(2):
                # The retry of an end whose response was lost, after a change of the producer id.
                scene.compare(transaction.end(commit=ending == "commits"), END, version)
                settle(scene, transaction)
        compare_state(scene, transaction)


def take_over(scene: Scene, transaction: Transaction, build: Build) -> None:
    """Initialize a producer, which aborts an open transaction; compare each response."""
    for _ in range(2):
        kafka, ours = scene.compare(build, INIT, 4)
        settle(scene, transaction)
        if kafka.error_code == ErrorCode.NONE and ours.error_code == ErrorCode.NONE:
            scene.remember(OWN, kafka.producer_id, ours.producer_id)
            transaction.epoch, transaction.sequence = kafka.producer_epoch, 0
            break
    compare_state(scene, transaction)


def exhausted(scene: Scene, name: str, epoch: int) -> Transaction:
    """Create a transactional id, and write a record with this epoch for the next start."""
    made = Transaction(f"exhausted-{name}", scene.topic(2), f"group-of-{name}", (0, 0))
    initialize(scene, made)
    for side in scene.pair.sides():
        write_epoch(side, made, epoch)
    return made


def continue_while_open(scene: Scene, transaction: Transaction) -> None:
    """Request the next epoch of a producer while its transaction is open (KIP-360).

    If the abort has the last epoch of clients, Kafka fails with an internal error. Barnabas gives
    that epoch to the producer.
    """
    take_over(scene, transaction, transaction.init())
    before = transaction.epoch
    assert before in (LAST_EPOCH - 1, LAST_EPOCH)
    scene.compare(transaction.produce(), PRODUCE, 13)
    check(scene)
    concurrent = {
        response.error_code for response in scene.do(INIT, 4, transaction.continue_producer())
    }
    assert concurrent == {ErrorCode.CONCURRENT_TRANSACTIONS}
    settle(scene, transaction)
    if before == LAST_EPOCH:
        # The abort had the next epoch, so that a new producer id begins.
        kafka, _ = scene.compare(transaction.continue_producer(), INIT, 4)
        assert (kafka.error_code, kafka.producer_epoch) == (ErrorCode.NONE, 0)
        compare_state(scene, transaction)
        check(scene)
        return
    kafka, ours = scene.do(INIT, 4, transaction.continue_producer())
    assert kafka.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (ours.error_code, ours.producer_epoch) == (ErrorCode.NONE, LAST_EPOCH)
    assert ours.producer_id == scene.pair.barnabas.number(OWN)


@pytest.mark.nightly
def test_an_exhausted_epoch_is_followed_by_a_new_producer_id(restarted: Restarted) -> None:
    pair = restarted.pair
    scene = Scene(pair, END, "exhausted", 4)
    made: list[Transaction] = []
    continuing = [exhausted(scene, f"continues-{each}", LAST_EPOCH - each) for each in (1, 2)]
    endings = [(ending, version) for ending in ENDINGS for version in (EXPLICIT_END, IMPLICIT_END)]
    for ending, version in endings:
        made.append(exhausted(scene, f"{ending}-{version}", LAST_EPOCH - 2))
    restarted.again({})
    for transaction, (ending, version) in zip(made, endings, strict=True):
        scene.label = f"{ending} in version {version}"
        exhaust(scene, transaction, version, ending)
    check(scene)
    check_records(pair, [each.id for each in made])
    for transaction in continuing:
        continue_while_open(scene, transaction)


def staged(scene: Scene, name: str) -> Transaction:
    """Commit an offset that expires at once, and stage another one in a transaction."""
    made = Transaction(f"staged-{name}", scene.topic(2), f"group-of-{name}", (0, 0))
    initialize(scene, made)
    scene.remember(f"producer of {name}", *(side[OWN] for side in scene.pair.sides()))
    scene.compare(made.commit_outside(retention_time_ms=1), OFFSET_COMMIT, 4)
    scene.compare(made.commit_offset(), COMMIT_OFFSETS, IMPLICIT_COMMIT)
    return made


@pytest.mark.nightly
def test_staged_offsets_hold_back_expiry_and_end_with_a_deletion(restarted: Restarted) -> None:
    pair = restarted.pair
    scene = Scene(pair, OFFSET_FETCH, "staged", 7)
    names = ("kept", "deleted", "of-a-deleted-group", "aborted")
    made = {name: staged(scene, name) for name in names}
    expiring = Transaction("none", made["kept"].topic, "group-without-a-transaction", (0, 0))
    scene.compare(expiring.commit_outside(retention_time_ms=1), OFFSET_COMMIT, 4)
    restarted.again({"offsets.retention.check.interval.ms": "300"})
    scene.until(lambda side: not offsets_of(side, expiring))
    for transaction in made.values():
        scene.compare(transaction.offsets(stable=False), OFFSET_FETCH, 7)
    scene.compare(made["deleted"].delete_offset(), OFFSET_DELETE, 0)
    scene.compare({"groups_names": [made["of-a-deleted-group"].group]}, DELETE_GROUPS, 2)
    for name, transaction in made.items():
        scene.compare(transaction.offsets(), OFFSET_FETCH, 7)
        producer = f"producer of {name}"
        is_commit = name != "aborted"
        scene.compare(transaction.end(0, producer, commit=is_commit), END, IMPLICIT_END)
        settle(scene, transaction)
    # After the abort, the offset from before the transaction expires.
    scene.until(lambda side: not offsets_of(side, made["aborted"]))
    for _ in range(2):
        for transaction in made.values():
            scene.compare(transaction.offsets(), OFFSET_FETCH, 7)
        restarted.again({})
    check(scene)
    groups = [each.group for each in made.values()]
    kafka, ours = (offsets(side, groups, OFFSET_PARTITIONS) for side in pair.sides())
    assert kafka
    different = differing(kafka, ours)
    assert not different, f"\n{different}"


def offsets_of(side: Side, transaction: Transaction) -> list[int]:
    """Return the committed offsets of the transaction's group."""
    requested = transaction.offsets(stable=False)(side)
    found = exchange(side, OFFSET_FETCH, 7, requested).topics
    return [partition.committed_offset for topic in found for partition in topic.partitions]
