"""The records of transactions: `__transaction_state`, data, markers and offsets, byte for byte.

Clients of both kinds run the same transactions on both brokers at each level of
transaction.version. Values that the brokers assign (producer ids, times) are normalized. Everything
else is compared unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.broker_pair import SETTINGS, started_pair
from differential.cases.offsets import commit
from differential.internal_records import differing, offsets, transactions
from differential.response import flatten
from differential.scene import Scene, exchange
from differential.transaction import (
    ADD,
    ADD_OFFSETS,
    COMMIT_OFFSETS,
    END,
    EXPLICIT_COMMIT,
    EXPLICIT_END,
    EXPLICIT_PRODUCE,
    FETCH,
    IMPLICIT_COMMIT,
    IMPLICIT_END,
    IMPLICIT_PRODUCE,
    INIT,
    OWN,
    PRODUCE,
    Transaction,
    settle,
    state_of,
)
from differential.transaction_walks import Walk, random_steps
from selection import nightly_rows_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.request import Values
    from differential.scene import Pair
    from differential.side import Side

    Build = Values | Callable[[Side], Values]

pytestmark = pytest.mark.conformance

STATE_PARTITIONS = int(SETTINGS["transaction.state.log.num.partitions"])
OFFSET_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
SAFE_DOWNGRADE, UPGRADE = 2, 1
# Long enough to write a record on a busy machine, short enough to wait for.
TIMEOUT_MS = 3_000
WALKS = 2
SOFTWARE = {"client_software_name": "records", "client_software_version": "1"}


@pytest.fixture(scope="module")
def own_pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Start separate brokers, because the tests of this file change transaction.version."""
    with started_pair(tmp_path_factory.mktemp("levels")) as made:
        yield made


class Client:
    """A producer of a transactional id, of transaction version 2 or older."""

    def __init__(self, scene: Scene, transaction: Transaction, *, is_new: bool) -> None:
        self.scene = scene
        self.transaction = transaction
        self.is_new = is_new

    def do(self, api: ApiKey, version: int, build: Build) -> Any:
        """Send a request, compare the responses, and return Kafka's."""
        kafka, _ = self.scene.compare(build, api, version)
        settle(self.scene, self.transaction)
        return kafka

    def start(self, build: Build | None = None) -> None:
        """Get a producer id, after the abort of an open transaction."""
        build = build or self.transaction.init()
        for _ in range(2):
            responses = self.scene.compare(build, INIT, 4)
            settle(self.scene, self.transaction)
            if responses[0].error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        if responses[0].error_code == ErrorCode.NONE:
            self.scene.remember(OWN, *(response.producer_id for response in responses))
            self.transaction.epoch, self.transaction.sequence = responses[0].producer_epoch, 0

    def produce(self, partition: int = 0, sequence: int | None = None) -> None:
        transaction = self.transaction
        if not self.is_new:
            self.do(ADD, 3, transaction.add(partition))
        version = IMPLICIT_PRODUCE if self.is_new else EXPLICIT_PRODUCE
        self.do(PRODUCE, version, transaction.produce(partition, sequence=sequence))
        if partition == 0:
            transaction.sequence += 1

    def commit_offset(self) -> None:
        if not self.is_new:
            self.do(ADD_OFFSETS, 3, self.transaction.add_offsets())
        version = IMPLICIT_COMMIT if self.is_new else EXPLICIT_COMMIT
        self.do(COMMIT_OFFSETS, version, self.transaction.commit_offset())

    def end(self, *, commit: bool) -> None:
        version = IMPLICIT_END if self.is_new else EXPLICIT_END
        response = self.do(END, version, self.transaction.end(commit=commit))
        # A retry of the end gets the same response.
        self.do(END, version, self.transaction.end(commit=commit))
        if self.is_new and response.error_code == ErrorCode.NONE:
            self.transaction.epoch, self.transaction.sequence = response.producer_epoch, 0


# Stories of producers.


def commits_and_aborts(client: Client) -> None:
    client.start()
    for is_commit in (True, False, True):
        client.produce()
        client.produce(1, 0)
        client.commit_offset()
        client.end(commit=is_commit)
        if not client.is_new:
            client.start()


def one_partition_each(client: Client) -> None:
    client.start()
    client.produce()
    client.end(commit=True)
    client.commit_offset()
    client.end(commit=False)
    client.produce(1, 0)
    client.end(commit=True)
    # A commit without a transaction.
    client.do(ApiKey.OFFSET_COMMIT, 9, commit(client.transaction.group, client.transaction.topic))


def initializes_repeatedly(client: Client) -> None:
    client.start()
    client.start()
    client.start(client.transaction.continue_producer())
    before = client.transaction.continue_producer(-1)
    client.start(before)
    if client.is_new:
        client.end(commit=False)
    client.start(client.transaction.init(12_345))


def is_fenced(client: Client) -> None:
    client.start()
    client.produce()
    client.commit_offset()
    client.start()
    client.produce()
    client.end(commit=True)


def continues_while_open(client: Client) -> None:
    client.start()
    client.produce()
    client.start(client.transaction.continue_producer())
    client.produce()
    client.end(commit=False)


def takes_too_long(client: Client) -> None:
    client.start(client.transaction.init(TIMEOUT_MS))
    client.produce()
    scene, name = client.scene, client.transaction.id
    scene.until(lambda side: state_of(side, name) != "Ongoing")
    settle(scene, client.transaction)
    client.start()


def stays_open(client: Client) -> None:
    client.start()
    client.produce()
    client.produce(1, 0)


STORIES = (
    commits_and_aborts,
    one_partition_each,
    initializes_repeatedly,
    is_fenced,
    continues_while_open,
    takes_too_long,
    stays_open,
)


def set_level(scene: Scene, level: int) -> None:
    """Change the level of transaction.version on both brokers, and wait until it is effective."""

    def found(side: Side) -> int | None:
        features = exchange(side, ApiKey.API_VERSIONS, 4, SOFTWARE).finalized_features
        levels = {each.name: each.max_version_level for each in features}
        return levels.get("transaction.version", 0)

    for side in scene.pair.sides():
        before = found(side)
        assert before is not None
        if before == level:
            continue
        kind = SAFE_DOWNGRADE if level < before else UPGRADE
        update = {"feature": "transaction.version", "max_version_level": level}
        requested = {"feature_updates": [{**update, "upgrade_type": kind}], "timeout_ms": 10_000}
        response = exchange(side, ApiKey.UPDATE_FEATURES, 1, requested)
        assert response.error_code == ErrorCode.NONE, f"{side.name}: {response}"
    scene.until(lambda side: found(side) == level)


def data_of(side: Side, transaction: Transaction) -> dict[str, object]:
    """Return all batches of the topic with their markers, and the aborted transactions."""
    response = exchange(side, FETCH, 12, transaction.fetch()(side))
    return flatten(response, 12, side)


def play_stories(scene: Scene, level: int, *, is_new: bool) -> list[Transaction]:
    """Run all stories, each with a separate transactional id, topic and group."""
    made = []
    for story in STORIES:
        name = f"{story.__name__}-{level}-{is_new}"
        transaction = Transaction(name, scene.topic(2), f"group-of-{name}", (0, 0))
        story(Client(scene, transaction, is_new=is_new))
        made.append(transaction)
    return made


# Level 0 is not tested with new clients: Kafka fails on each of their requests, and the id becomes
# unusable. Clients read the level from ApiVersions, and do not send such requests.
@pytest.mark.parametrize(
    ("level", "is_new"),
    nightly_rows_unless(
        {(2, True), (0, False)}.__contains__,
        [(2, True), (2, False), (1, True), (1, False), (0, False)],
    ),
    ids=["2-new-client", "2-old-client", "1-new-client", "1-old-client", "0-old-client"],
)
def test_the_records_of_transactions_are_equal(own_pair: Pair, level: int, is_new: bool) -> None:
    scene = Scene(own_pair, INIT, f"records-{level}-{is_new}", 4)
    set_level(scene, level)
    made = play_stories(scene, level, is_new=is_new)
    for number in range(WALKS):
        seed = f"records-{level}-{is_new}-{number}"
        walk = Walk(own_pair, seed, scene)
        walk.play(random_steps(seed, of_old_clients=not is_new))
        made += walk.transactions
    found = list(scene.unexpected({}, set()))
    assert not found, "\n".join(found)
    ids, groups = [each.id for each in made], [each.group for each in made]
    kafka, ours = (transactions(side, ids, STATE_PARTITIONS) for side in own_pair.sides())
    assert len(kafka) > 5 * len(ids)
    different = differing(kafka, ours)
    assert not different, f"\n{different}"
    for transaction in made:
        # Transactions of a walk share their topic.
        kafka_data, our_data = (data_of(side, transaction) for side in own_pair.sides())
        assert our_data == kafka_data, transaction.id
    kafka, ours = (offsets(side, groups, OFFSET_PARTITIONS) for side in own_pair.sides())
    assert any("marker" in line for line in kafka)
    different = differing(kafka, ours)
    assert not different, f"\n{different}"
