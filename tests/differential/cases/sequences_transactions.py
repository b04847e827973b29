"""The lifecycle of a transactional id: each request in each state, and its visible effects.

A state is a function that brings a new id into this state; a request is one of `ROWS`. Each
combination is a case. It compares the responses to the request and its repetition, the visible
state of the transaction, and the responses to the next producer of the id.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.case import CASES, Case, is_left_out
from differential.response import Flat, flatten
from differential.scene import Scene, exchange
from differential.transaction import (
    ADD,
    ADD_OFFSETS,
    COMMIT_OFFSETS,
    DELETE_RECORDS,
    DESCRIBE,
    END,
    EXPLICIT_COMMIT,
    EXPLICIT_END,
    EXPLICIT_PRODUCE,
    FETCH,
    FOREIGN,
    IMPLICIT_COMMIT,
    IMPLICIT_END,
    IMPLICIT_PRODUCE,
    INIT,
    LIST,
    LIST_OFFSETS,
    MARKERS,
    OFFSET_FETCH,
    OWN,
    PRODUCE,
    PRODUCERS,
    Transaction,
    compare_state,
    finish,
    initialize,
    new_transaction,
    own_producers_only,
    partitions_of,
    settle,
    starts_of,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

    Build = Values | Callable[[Side], Values]
    State = Callable[[Scene, Transaction], None]

DELETE_TOPICS = ApiKey.DELETE_TOPICS
# Above the epoch of every coordinator in these tests.
LATER_COORDINATOR = 1000
# The timeout, and the number of transactions that time out together. The timeout is long enough to
# begin so many transactions, and short enough to wait for.
TIMEOUT_MS, TIMED_OUT_AT_ONCE = 3_000, 100

# States.


def absent(scene: Scene, transaction: Transaction) -> None:
    """The id is unknown; the producer id has no transactional id."""


def empty(scene: Scene, transaction: Transaction) -> None:
    initialize(scene, transaction)


def empty_after_another_producer(scene: Scene, transaction: Transaction) -> None:
    empty(scene, transaction)
    initialize(scene, transaction)


def empty_after_continuing(scene: Scene, transaction: Transaction) -> None:
    """The producer has requested its next epoch (KIP-360)."""
    empty(scene, transaction)
    initialize(scene, transaction, transaction.continue_producer())


def added(scene: Scene, transaction: Transaction) -> None:
    """Ongoing: a partition was added, and no record produced."""
    empty(scene, transaction)
    _do(scene, ADD, 3, transaction.add(0))


def ongoing(scene: Scene, transaction: Transaction) -> None:
    """Ongoing, by a client that adds partitions itself."""
    added(scene, transaction)
    _do(scene, PRODUCE, EXPLICIT_PRODUCE, transaction.produce())
    transaction.sequence = 1


def ongoing_by_produce(scene: Scene, transaction: Transaction) -> None:
    """Ongoing, by a client of transaction version 2."""
    empty(scene, transaction)
    _do(scene, PRODUCE, IMPLICIT_PRODUCE, transaction.produce())
    transaction.sequence = 1


def offsets_added(scene: Scene, transaction: Transaction) -> None:
    """Ongoing: the group was added, and no offset committed."""
    empty(scene, transaction)
    _do(scene, ADD_OFFSETS, 3, transaction.add_offsets())


def ongoing_offsets(scene: Scene, transaction: Transaction) -> None:
    offsets_added(scene, transaction)
    _do(scene, COMMIT_OFFSETS, EXPLICIT_COMMIT, transaction.commit_offset())


def ongoing_offsets_by_commit(scene: Scene, transaction: Transaction) -> None:
    empty(scene, transaction)
    _do(scene, COMMIT_OFFSETS, IMPLICIT_COMMIT, transaction.commit_offset())


def ongoing_with_offsets(scene: Scene, transaction: Transaction) -> None:
    """Ongoing: a record and an offset."""
    ongoing_by_produce(scene, transaction)
    _do(scene, COMMIT_OFFSETS, IMPLICIT_COMMIT, transaction.commit_offset())


def ongoing_in_a_deleted_topic(scene: Scene, transaction: Transaction) -> None:
    """Ongoing: the topic of its only partition was deleted."""
    shared = transaction.topic
    transaction.topic, transaction.starts = scene.topic(2), (0, 0)
    ongoing_by_produce(scene, transaction)
    scene.do(DELETE_TOPICS, 5, {"topic_names": [transaction.topic], "timeout_ms": 10_000})
    gone = transaction.ends()

    def is_gone(side: Side) -> bool:
        found = exchange(side, LIST_OFFSETS, 5, gone).topics[0].partitions
        return all(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in found)

    scene.until(is_gone)
    assert transaction.topic != shared


def _ended(scene: Scene, transaction: Transaction, *, commit: bool, version: int) -> None:
    if version >= IMPLICIT_END:
        ongoing_with_offsets(scene, transaction)
    else:
        ongoing(scene, transaction)
    responses = _do(scene, END, version, transaction.end(commit=commit))
    settle(scene, transaction)
    if version >= IMPLICIT_END:
        transaction.epoch, transaction.sequence = responses[0].producer_epoch, 0


def committed(scene: Scene, transaction: Transaction) -> None:
    _ended(scene, transaction, commit=True, version=EXPLICIT_END)


def committed_with_new_epoch(scene: Scene, transaction: Transaction) -> None:
    _ended(scene, transaction, commit=True, version=IMPLICIT_END)


def aborted(scene: Scene, transaction: Transaction) -> None:
    _ended(scene, transaction, commit=False, version=EXPLICIT_END)


def aborted_with_new_epoch(scene: Scene, transaction: Transaction) -> None:
    _ended(scene, transaction, commit=False, version=IMPLICIT_END)


def aborted_before_it_began(scene: Scene, transaction: Transaction) -> None:
    """A client of transaction version 2 may abort an empty transaction."""
    empty(scene, transaction)
    responses = _do(scene, END, IMPLICIT_END, transaction.end(commit=False))
    settle(scene, transaction)
    transaction.epoch = responses[0].producer_epoch


def ongoing_after_commit(scene: Scene, transaction: Transaction) -> None:
    """The second transaction of a producer."""
    committed(scene, transaction)
    _do(scene, PRODUCE, IMPLICIT_PRODUCE, transaction.produce())
    transaction.sequence += 1


def _with_blocked_markers(
    scene: Scene, transaction: Transaction, *, commit: bool, version: int
) -> None:
    """The end is decided, but a leader refuses the marker: a later coordinator has written one."""
    if version >= IMPLICIT_END:
        ongoing_by_produce(scene, transaction)
        _do(scene, PRODUCE, IMPLICIT_PRODUCE, transaction.produce(1))
    else:
        added(scene, transaction)
        _do(scene, PRODUCE, EXPLICIT_PRODUCE, transaction.produce())
        _do(scene, ADD, 3, transaction.add(1))
        _do(scene, PRODUCE, EXPLICIT_PRODUCE, transaction.produce(1))
        transaction.sequence = 1
    _do(scene, MARKERS, 1, transaction.markers(LATER_COORDINATOR, commit=commit))
    _do(scene, END, version, transaction.end(commit=commit))
    transaction.has_blocked_markers = True

    def waits_for_partition_0(side: Side) -> bool:
        """Return whether the coordinator waits only for the marker of partition 0."""
        found = exchange(side, LIST_OFFSETS, 5, transaction.ends()).topics[0].partitions
        ends = {each.partition_index: each.offset for each in found}
        has_marker = bool(ends[1] == transaction.starts[1] + 2)
        return has_marker and partitions_of(side, transaction.id) == [0]

    scene.until(waits_for_partition_0)


def commit_prepared(scene: Scene, transaction: Transaction) -> None:
    _with_blocked_markers(scene, transaction, commit=True, version=EXPLICIT_END)


def commit_prepared_with_new_epoch(scene: Scene, transaction: Transaction) -> None:
    _with_blocked_markers(scene, transaction, commit=True, version=IMPLICIT_END)


def abort_prepared(scene: Scene, transaction: Transaction) -> None:
    _with_blocked_markers(scene, transaction, commit=False, version=EXPLICIT_END)


def abort_prepared_with_new_epoch(scene: Scene, transaction: Transaction) -> None:
    _with_blocked_markers(scene, transaction, commit=False, version=IMPLICIT_END)


def fenced(scene: Scene, transaction: Transaction) -> None:
    """Another producer made the coordinator abort, and has not repeated its request yet."""
    ongoing_with_offsets(scene, transaction)
    scene.do(INIT, 4, transaction.init())
    settle(scene, transaction)


def replaced(scene: Scene, transaction: Transaction) -> None:
    """Another producer made the coordinator abort, and has the id."""
    ongoing_with_offsets(scene, transaction)
    initialize(scene, transaction)


def timed_out(scene: Scene, transaction: Transaction) -> None:
    """The coordinator has aborted the transaction after its timeout.

    The transaction has no records, because they might arrive after the timeout.
    """
    pool = scene.pair.timed_out
    if not pool:
        for number in range(TIMED_OUT_AT_ONCE):
            each = replace(transaction, id=f"{transaction.id}-late-{number}")
            initialize(scene, each, each.init(TIMEOUT_MS))
            _do(scene, ADD, 3, each.add(0))
            pool.append((each.id, [side[OWN] for side in scene.pair.sides()]))
        names = [name for name, _ in pool]
        scene.until(lambda side: all(state_of(side, name) == "CompleteAbort" for name in names))
    transaction.id, producers = pool.pop()
    transaction.starts = starts_of(scene, transaction.topic)
    scene.remember(OWN, *producers)


STATES: tuple[State, ...] = (
    absent,
    empty,
    empty_after_another_producer,
    empty_after_continuing,
    added,
    ongoing,
    ongoing_by_produce,
    offsets_added,
    ongoing_offsets,
    ongoing_offsets_by_commit,
    ongoing_with_offsets,
    ongoing_in_a_deleted_topic,
    ongoing_after_commit,
    committed,
    committed_with_new_epoch,
    aborted,
    aborted_with_new_epoch,
    aborted_before_it_began,
    commit_prepared,
    commit_prepared_with_new_epoch,
    abort_prepared,
    abort_prepared_with_new_epoch,
    fenced,
    replaced,
    timed_out,
)


def _do(scene: Scene, api: ApiKey, version: int, build: Build) -> tuple[Any, Any]:
    """Send a request that both brokers must accept."""
    responses = scene.do(api, version, build)
    for response, side in zip(responses, scene.pair.sides(), strict=True):
        codes = [
            value
            for path, value in flatten(response, version, side).items()
            if path.endswith("error_code")
        ]
        assert not any(codes), f"{side.name}: {response}"
    return responses


# Requests.


class Row(NamedTuple):
    """A request of a transaction."""

    api: ApiKey
    name: str
    build: Callable[[Transaction], Build]
    versions: tuple[int, ...]
    # Versions that differ only in their fields, which are tested in `IN_ALL_VERSIONS`.
    more: tuple[int, ...] = ()


# Epochs relative to the producer's.
EPOCHS = ((-2, "epoch-before-the-last"), (-1, "last-epoch"), (0, "epoch"), (1, "next-epoch"))


def _initializations() -> list[Row]:
    rows = [Row(INIT, "new-producer", lambda t: t.init(), (4,), (0, 3, 5))]
    rows += [
        Row(INIT, f"producer-of-the-{name}", lambda t, d=delta: t.continue_producer(d), (4,))
        for delta, name in EPOCHS
    ]
    return [
        *rows,
        Row(INIT, "producer-of-another-id", lambda t: t.continue_producer(producer=FOREIGN), (3,)),
        Row(INIT, "new-timeout", lambda t: t.init(1234), (2,)),
    ]


def _additions() -> list[Row]:
    # Versions from 4 on are for brokers.
    both = (3,), (5,)
    rows = [
        Row(api, f"with-the-{name}", build, versions, more)
        for delta, name in EPOCHS
        for api, build, versions, more in (
            (ADD, lambda t, d=delta: t.add(1, delta=d), *both),
            (ADD_OFFSETS, lambda t, d=delta: t.add_offsets(d), (4,), (3,)),
        )
    ]
    return [
        *rows,
        Row(ADD, "a-partition-that-may-be-added-already", lambda t: t.add(0), (3, 5)),
        Row(ADD, "both-partitions", lambda t: t.add(0, 1), (4,)),
        Row(ADD, "no-partitions", lambda t: t.add(), *both),
        Row(ADD, "an-unknown-partition", lambda t: t.add(0, 9, others=("none",)), *both),
        Row(ADD, "of-another-producer", lambda t: t.add(0, producer=FOREIGN), *both),
        Row(ADD, "verified", lambda t: t.add(0, 1, verify=True), (5,), (4,)),
        Row(ADD, "verified-with-the-last-epoch", lambda t: t.add(0, delta=-1, verify=True), (5,)),
        Row(ADD, "verified-of-another", lambda t: t.add(0, producer=FOREIGN, verify=True), (5,)),
        Row(ADD_OFFSETS, "of-another-producer", lambda t: t.add_offsets(0, FOREIGN), (3,)),
    ]


def _commits() -> list[Row]:
    versions, more = (4, 5), (3, 6)
    rows = [
        Row(
            COMMIT_OFFSETS,
            f"with-the-{name}",
            lambda t, d=delta: t.commit_offset(d),
            versions,
            more,
        )
        for delta, name in EPOCHS
    ]
    return [
        *rows,
        Row(COMMIT_OFFSETS, "of-another-producer", lambda t: t.commit_offset(0, FOREIGN), (4, 5)),
        Row(
            COMMIT_OFFSETS,
            "of-an-unknown-generation",
            lambda t: t.commit_offset(generation_id_or_member_epoch=3, member_id="somebody"),
            (4, 5),
        ),
    ]


def _endings() -> list[Row]:
    rows = [
        Row(
            END,
            f"{word}-with-the-{name}",
            lambda t, d=delta, c=commit: t.end(d, commit=c),
            (4, 5),
            (3,),
        )
        for delta, name in EPOCHS
        for commit, word in ((True, "commit"), (False, "abort"))
    ]
    return [
        *rows,
        Row(END, "of-another-producer", lambda t: t.end(0, FOREIGN, commit=True), (4, 5)),
    ]


def _records() -> list[Row]:
    edges = (EXPLICIT_PRODUCE, IMPLICIT_PRODUCE)
    rows = [
        Row(PRODUCE, f"with-the-{name}", lambda t, d=delta: t.produce(delta=d), edges, (12,))
        for delta, name in EPOCHS
    ]
    return [
        *rows,
        Row(PRODUCE, "into-the-other-partition", lambda t: t.produce(1), edges),
        Row(PRODUCE, "a-gap-in-sequence", lambda t: t.produce(sequence=t.sequence + 5), edges),
        Row(PRODUCE, "the-first-sequence-again", lambda t: t.produce(sequence=0), edges),
        Row(PRODUCE, "of-another-producer", lambda t: t.produce(producer=FOREIGN), edges),
        Row(PRODUCE, "without-the-id", lambda t: t.produce(transactional_id=None), edges),
        Row(PRODUCE, "of-another-id", lambda t: t.produce(transactional_id="other"), edges),
        Row(PRODUCE, "not-transactional", lambda t: t.produce(transactional=False), edges),
        Row(
            PRODUCE,
            "idempotent",
            lambda t: t.produce(transactional=False, transactional_id=None),
            edges,
        ),
    ]


def _markers() -> list[Row]:
    def build(t: Transaction, coordinator: int, delta: int, commit: bool, version: int) -> Build:
        # The coordinator's own marker may be refused after this one.
        t.has_blocked_markers = t.has_blocked_markers or coordinator > 0 or delta > 0 or version > 0
        return t.markers(coordinator, delta, commit=commit, version=version)

    return [
        Row(
            MARKERS,
            f"of-coordinator-{coordinator}-with-the-{name}{of_version}",
            partial(build, coordinator=coordinator, delta=delta, commit=commit, version=version),
            (2,) if version else (1,),
            (2,),
        )
        for coordinator, delta, name, commit, version, of_version in (
            *((c, d, name, d >= 0, 0, "") for c in (-1, 0, 5) for d, name in EPOCHS[1:]),
            (0, 0, "epoch", True, 2, "-of-version-2"),
            (0, 1, "next-epoch", False, 2, "-of-version-2"),
        )
    ]


def _reads() -> list[Row]:
    return [
        Row(DESCRIBE, "of-the-id", lambda t: {"transactional_ids": [t.id, t.id]}, (0,)),
        Row(FETCH, "committed", lambda t: t.fetch(), (12,), (4, 11, 17)),
        Row(FETCH, "uncommitted", lambda t: t.fetch(0), (17,), (11,)),
        Row(FETCH, "committed-in-a-session", lambda t: t.fetch(session_epoch=0), (11,)),
        Row(LIST_OFFSETS, "committed-end", lambda t: t.ends(), (10,), (2, 5)),
        Row(LIST_OFFSETS, "committed-beginning", lambda t: t.ends(timestamp=-2), (5,)),
        Row(LIST_OFFSETS, "uncommitted-end", lambda t: t.ends(0), (5,)),
        Row(OFFSET_FETCH, "stable", lambda t: t.offsets(everything=False), (8,), (7, 10)),
        Row(OFFSET_FETCH, "all-stable", lambda t: t.offsets(), (7,), (9,)),
        Row(OFFSET_FETCH, "unstable", lambda t: t.offsets(stable=False), (9,), (7,)),
        Row(DELETE_RECORDS, "to-the-end", lambda t: t.delete_records(-1), (2,)),
        Row(DELETE_RECORDS, "to-the-first-record-s-end", lambda t: t.delete_records(1), (2,)),
        Row(DELETE_RECORDS, "to-the-first-record", lambda t: t.delete_records(0), (2,)),
    ]


ROWS = [
    *_initializations(),
    *_additions(),
    *_commits(),
    *_endings(),
    *_records(),
    *_markers(),
    *_reads(),
]


# Cases.


def play(scene: Scene, state: State, row: Row) -> None:
    """Send a request twice in a state, and compare its effects."""
    transaction = new_transaction(scene)
    state(scene, transaction)
    build = row.build(transaction)
    for _ in range(2):
        scene.compare(build)
        settle(scene, transaction)
    compare_state(scene, transaction)
    finish(scene, transaction)


def _own_only(response: Any, transactional_id: str) -> None:
    response.transaction_states[:] = [
        each for each in response.transaction_states if each.transactional_id == transactional_id
    ]


def listed(scene: Scene, state: State) -> None:
    """Compare the lists of ids with each filter in a state."""
    transaction = new_transaction(scene)
    state(scene, transaction)
    scene.before_comparing = partial(_own_only, transactional_id=transaction.id)
    filters: list[dict[str, Any]] = [
        {"state_filters": [name]}
        for name in (
            "Empty",
            "Ongoing",
            "PrepareCommit",
            "PrepareAbort",
            "CompleteCommit",
            "CompleteAbort",
            "ongoing",
            "Nothing",
        )
    ]
    filters += [{}, {"state_filters": ["Ongoing", "CompleteAbort", "Empty"]}]
    filters += [{"duration_filter": number} for number in (0, 1, 3_600_000)]
    filters += [{"transactional_id_pattern": text} for text in ("", ".*-id-.*", "id", "(")]
    for requested in filters:
        scene.compare({"duration_filter": -1, **requested})
    for name in (OWN, FOREIGN):
        scene.compare(lambda side, n=name: {"producer_id_filters": [side[n]]})


def produced(scene: Scene, state: State) -> None:
    """Compare the producers of the partitions in a state."""
    transaction = new_transaction(scene)
    state(scene, transaction)
    flats: list[Flat] = []
    for side in scene.pair.sides():
        response = exchange(side, PRODUCERS, scene.version, transaction.producers())
        own_producers_only(response, side)
        flats.append(flatten(response, scene.version, side))
    scene.note(*flats)
    finish(scene, transaction)


IN_ALL_VERSIONS = (absent, empty, ongoing, ongoing_with_offsets, aborted_with_new_epoch)

for _place, _state in enumerate(STATES):
    _words = _state.__name__.replace("_", "-")
    for _number, _row in enumerate(ROWS):
        CASES.append(
            Case(
                _row.api,
                f"{_row.name}-when-{_words}",
                partial(play, state=_state, row=_row),
                frozenset(_row.versions + (_row.more if _state in IN_ALL_VERSIONS else ())),
                is_left_out(_place, _number),
            )
        )
    CASES.append(Case(LIST, f"filters-when-{_words}", partial(listed, state=_state)))
    CASES.append(Case(PRODUCERS, f"when-{_words}", partial(produced, state=_state)))
