"""A promoted mirror keeps no open transactions and no producers of its source."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import set_offset_and_epoch
from barnabas.record.builder import BatchBuilder
from barnabas.replication.links.source_offsets import SOURCE_REMAINS
from barnabas.server.links.ended_mirrors import EndedMirrors
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.waiting.steps import run_steps
from unit.replication.following_broker import data
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.replica_set import PARTITION, TOPIC

PRODUCER = 7


def open_transaction() -> bytes:
    """Return a batch of the source that begins a transaction at offset 0."""
    builder = BatchBuilder(
        producer_id=PRODUCER, producer_epoch=2, base_sequence=0, transactional=True
    )
    builder.append(1_000, None, b"open")
    made = builder.build()
    set_offset_and_epoch(made, 0, 0, 3)
    return bytes(made)


def remains(broker: MirroringBroker) -> tuple[ErrorCode, int]:
    steps = broker.set.manager.list_offset(
        PARTITION, SOURCE_REMAINS, FetchIsolation.HIGH_WATERMARK, -1
    )
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value.error, end.value.value.offset


def promote(broker: MirroringBroker) -> None:
    """Stop fetching, as the link does for the state `promoting`."""
    broker.fetchers.lead([])
    broker.set.manager.set_read_only_topics({TOPIC}, frozenset({TOPIC}))


def work(broker: MirroringBroker) -> None:
    ended = EndedMirrors(broker.set.manager, broker.set.runtime.clock)
    run_steps(ended.end_slowly(broker.set.image, [TOPIC]))


def open_ones(broker: MirroringBroker) -> dict[int, int]:
    return broker.log.producer_state.transactions.ongoing


@pytest.fixture
def broker() -> MirroringBroker:
    made = MirroringBroker((1, 2))
    made.set.manager.set_read_only_topics({TOPIC}, frozenset())
    made.give(data(open_transaction(), high_watermark=1))
    made.set.follow(2, 1, current_leader_epoch=0, last_fetched_epoch=0)
    assert open_ones(made) == {0: PRODUCER}
    return made


def test_a_leader_that_does_not_know_the_promotion_reports_nothing(
    broker: MirroringBroker,
) -> None:
    assert remains(broker)[0] is ErrorCode.UNSUPPORTED_VERSION


def test_the_leader_aborts_and_forgets_when_all_replicas_have_the_marker(
    broker: MirroringBroker,
) -> None:
    promote(broker)
    work(broker)

    assert not open_ones(broker)
    assert broker.log.log_end_offset == 2
    assert remains(broker)[1] > 0
    broker.set.follow(2, 2, current_leader_epoch=0, last_fetched_epoch=0)
    work(broker)

    assert remains(broker) == (ErrorCode.NONE, 0)
    assert not broker.log.producer_state.entries
    assert broker.log.last_stable_offset == 2


def test_the_work_is_done_once(broker: MirroringBroker) -> None:
    promote(broker)
    work(broker)
    broker.set.follow(2, 2, current_leader_epoch=0, last_fetched_epoch=0)
    work(broker)
    segments = list(broker.log.segments)
    work(broker)

    assert broker.log.log_end_offset == 2
    assert list(broker.log.segments) == segments


def test_a_new_leader_goes_on_with_a_promotion(broker: MirroringBroker) -> None:
    broker.set.change(leader=2)
    promote(broker)
    work(broker)
    assert open_ones(broker) == {0: PRODUCER}
    broker.set.change(leader=1)
    work(broker)

    assert not open_ones(broker)
    assert broker.offsets_and_epochs() == [(0, 0), (1, 2)]


def test_only_the_promotion_writes_markers_to_a_mirror(broker: MirroringBroker) -> None:
    """The ids of this cluster's producers are the same as those of the source's."""
    promote(broker)
    marker = memoryview(open_transaction())
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.BUMPING_MARKER):
        broker.set.manager.append_records(
            1_000, 1, {PARTITION: marker}, origin, broker.set.answers.produced.append
        )

    assert broker.log.log_end_offset == 1
    assert open_ones(broker) == {0: PRODUCER}
