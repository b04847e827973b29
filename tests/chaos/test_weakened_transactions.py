"""Each rule of transactions is disabled in turn, and the checker must find it.

Three simulated brokers run with transactional clients and faults (`simulation.transactions`). With
all rules, the transaction checker finds nothing in these runs. Without one rule, it finds a fault,
or an invariant of the product fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from barnabas.client.fetch import fetcher
from barnabas.client.transactions import manager as client_manager
from barnabas.client.transactions.manager import TransactionManager
from barnabas.coordinator.group.offset_store import OffsetStore
from barnabas.coordinator.group.requests.offset_requests import OffsetRequests
from barnabas.coordinator.runtime.responses import HeldResponse
from barnabas.coordinator.runtime.state_partition import StatePartition
from barnabas.coordinator.transaction import decisions, transaction_shard
from barnabas.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.coordinator.transaction.transaction_record import read_transaction
from barnabas.coordinator.transaction.transaction_shard import TransactionShard
from barnabas.protocol.errors import ErrorCode
from barnabas.server.controller_access.broker_requests import ProducerIds
from barnabas.server.peers.markers import MarkerWriter
from barnabas.storage.log.log_offsets import LogOffsets
from barnabas.storage.producers import producer_state
from barnabas.storage.producers.open_transactions import OpenTransactions
from barnabas.storage.producers.producer_entry import ProducerEntry
from barnabas.storage.producers.producer_state import ProducerState
from chaos.transaction_checker import KINDS
from selection import nightly_unless
from simulation.failing_requests import fail_some_requests, stop_after_a_failure
from simulation.transactions.styles import STYLES
from simulation.transactions.walk import Walk

pytestmark = pytest.mark.seeded

# Virtual seconds of one run; fewer are enough for rules that each transaction needs.
SECONDS = 5.0
SHORT = 2.5
# For transactions that exceed their timeout, and for rare moments.
LONG = 8.0
# A weakened rule must be found by one of these seeds. Most rules are found by all of them.
SEEDS = range(1, 9)
CORRECT_SEEDS = range(1, 3)
# What `make check` plays of them. `simulation/test_transactions.py` plays other styles.
CORRECT_STYLES = {"mixed"}
# Rules that need long walks; `make nightly` tests them.
SLOWEST = {
    "last stable offset is ignored by reads",
    "the marker of one partition is not written",
    "leaders accept batches of fenced producers",
    "initialization does not raise the epoch",
    "a timeout does not raise the epoch",
    "the end of a transaction is taken from fenced producers",
    "a commit is answered before it is replicated",
    "a loaded coordinator does not end decided transactions",
    "a loading coordinator forgets decisions",
    "initialization forgets the open transaction",
    "stable reads pass markers that are not replicated",
    "stop after a failure",
    "reads of offsets are never stable",
    "offsets of an aborted transaction take effect",
    "offsets of a committed transaction are dropped",
    "transactions do not time out",
    "transactions are not verified",
    "followers do not know open transactions",
    "stable reads do not check for another coordinator",
}
INVARIANT = "invariant"

Weaken = Callable[[pytest.MonkeyPatch], None]


class Rule(NamedTuple):
    """How to leave a rule out, and how that shows."""

    weaken: Weaken
    # At least one of these findings must be there.
    kinds: frozenset[str]
    # Style of the walks, and their length in virtual seconds.
    style: str
    seconds: float


RULES: dict[str, Rule] = {}


def rule(*kinds: str, style: str = "mixed", seconds: float = SECONDS) -> Callable[[Weaken], Weaken]:
    """Add a weakened rule, named after its function.

    Args:
        kinds: findings of the checker, or `INVARIANT`; at least one of them is expected.
        style: what is done in the runs.
        seconds: length of a run, in virtual seconds.
    """
    assert set(kinds) <= {*KINDS, INVARIANT}

    def register(weaken: Weaken) -> Weaken:
        RULES[weaken.__name__.replace("_", " ")] = Rule(weaken, frozenset(kinds), style, seconds)
        return weaken

    return register


# Reads.


@rule("intermediate read", "aborted read", seconds=SHORT)
def last_stable_offset_is_ignored_by_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogOffsets, "last_stable_offset", property(lambda self: self.high_watermark))


@rule("aborted read", seconds=SHORT)
def aborted_transactions_are_not_indexed(patch: pytest.MonkeyPatch) -> None:
    real = ProducerState.commit_all

    def commit_all(*args: Any) -> list[Any]:
        real(*args)
        return []

    patch.setattr(ProducerState, "commit_all", commit_all)


@rule("aborted read", seconds=SHORT)
def the_reader_does_not_skip_aborted_records(patch: pytest.MonkeyPatch) -> None:
    real = fetcher.RecordSet
    patch.setattr(fetcher, "RecordSet", lambda *args: real(*args[:7], (), *args[8:]))


@rule("intermediate read", "aborted read", style="leaders")
def followers_do_not_know_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """A follower that is elected serves records of transactions that are open."""
    real = OpenTransactions.begin

    def begin(self: OpenTransactions, first_offset: int, producer_id: int) -> None:
        if not IS_FOLLOWING:
            real(self, first_offset, producer_id)

    patch.setattr(OpenTransactions, "begin", begin)
    patch_following(patch)


IS_FOLLOWING: list[bool] = []


def patch_following(patch: pytest.MonkeyPatch) -> None:
    """Fill `IS_FOLLOWING` while a follower's batches are applied."""
    from barnabas.storage.log.log_appender import LogAppender

    real = LogAppender.append_as_follower

    def append_as_follower(*args: Any, **kwargs: Any) -> Any:
        IS_FOLLOWING.append(True)
        try:
            return real(*args, **kwargs)
        finally:
            IS_FOLLOWING.pop()

    patch.setattr(LogAppender, "append_as_follower", append_as_follower)


# Markers.


@rule("hanging", "lost", "torn", seconds=SHORT)
def the_marker_of_one_partition_is_not_written(patch: pytest.MonkeyPatch) -> None:
    real = MarkerWriter.write

    def write(self: MarkerWriter, ending: Any, partitions: Any, on_result: Any) -> None:
        first, *others = partitions
        on_result(first, ErrorCode.NONE)
        real(self, ending, others, on_result)

    patch.setattr(MarkerWriter, "write", write)


@rule("torn", "lost", seconds=SHORT)
def one_partition_gets_the_opposite_marker(patch: pytest.MonkeyPatch) -> None:
    real = MarkerWriter.write

    def write(self: MarkerWriter, ending: Any, partitions: Any, on_result: Any) -> None:
        first, *others = partitions
        opposite = msgspec.structs.replace(ending, is_commit=not ending.is_commit)
        real(self, opposite, [first], on_result)
        real(self, ending, others, on_result)

    patch.setattr(MarkerWriter, "write", write)


# Epochs and sequences of producers.


@rule("duplicated", "reordered", INVARIANT, style="resets")
def sequences_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state, "_check_sequence", lambda *_: None)
    patch.setattr(ProducerState, "find_duplicate", lambda *_: None)


@rule("zombie", "aborted read", "hanging", style="unverified", seconds=SHORT)
def leaders_accept_batches_of_fenced_producers(patch: pytest.MonkeyPatch) -> None:
    """Three checks reject such batches: before the verification, the epoch, and the sequence."""
    real = producer_state._check_sequence

    def check_sequence(entry: ProducerEntry, epoch: int, base_sequence: int) -> None:
        if epoch >= entry.producer_epoch:
            real(entry, epoch, base_sequence)

    patch.setattr(ProducerState, "is_fenced", lambda *_: False)
    patch.setattr(producer_state, "_check_epoch", lambda *_: None)
    patch.setattr(producer_state, "_check_sequence", check_sequence)


@rule("aborted read", "hanging", style="old")
def transactions_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """A late batch of an aborted transaction opens it again in its partition."""
    patch.setattr(ProducerState, "begin_verification", lambda *_, **__: None)
    patch.setattr(producer_state, "_check_verification", lambda *_: None)


@rule("zombie", "intermediate read", "torn", "aborted read", style="fencing")
def initialization_does_not_raise_the_epoch(patch: pytest.MonkeyPatch) -> None:
    real = decisions.initialize

    def initialize(metadata: Any, *args: Any) -> Any:
        after = real(metadata, *args)
        if metadata is None or isinstance(after, ErrorCode):
            return after
        return msgspec.structs.replace(after, producer_epoch=metadata.producer_epoch)

    patch.setattr(decisions, "initialize", initialize)


@rule("torn", "hanging", "zombie", "intermediate read", style="timeouts", seconds=LONG)
def a_timeout_does_not_raise_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def fenced(self: TransactionMetadata, client_version: int, now_ms: int) -> Any:
        after = real(self, client_version, now_ms)
        return msgspec.structs.replace(after, producer_epoch=self.producer_epoch)

    real = TransactionMetadata.fenced
    patch.setattr(TransactionMetadata, "fenced", fenced)


@rule(*KINDS, INVARIANT, seconds=SHORT)
def all_producers_get_the_same_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerIds, "next_id", lambda _self, on_id: on_id(7, ErrorCode.NONE))


# The coordinator's decisions.


@rule("zombie", "intermediate read", "torn", "aborted read", style="fencing")
def the_end_of_a_transaction_is_taken_from_fenced_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "check_ending", lambda metadata, _: unknown_only(metadata))
    patch.setattr(
        decisions,
        "check_producer",
        lambda metadata, _: unknown_only(metadata),
    )


def unknown_only(metadata: TransactionMetadata | None) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if metadata is None else ErrorCode.NONE


@rule("lost", style="timeouts", seconds=LONG)
def a_retried_commit_of_an_aborted_transaction_succeeds(patch: pytest.MonkeyPatch) -> None:
    real = decisions.end

    def end(metadata: TransactionMetadata, request: Any, *args: Any) -> Any:
        if metadata.state in (TransactionState.COMPLETE_ABORT, TransactionState.PREPARE_ABORT):
            request = msgspec.structs.replace(request, is_commit=False)
        return real(metadata, request, *args)

    patch.setattr(decisions, "end", end)
    patch.setattr(decisions, "check_ending", lambda metadata, _: unknown_only(metadata))


@rule("lost", "offset behind", "torn", style="coordinators", seconds=LONG)
def a_commit_is_answered_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    """The record of the decision is in the coordinator's log only, when it answers."""
    real = StatePartition._hold_appended

    def hold_appended(self: Any, held: HeldResponse, end_offset: int) -> None:
        if self.key.topic == "__transaction_state":
            self.shard.commit(end_offset)
        real(self, held, end_offset)
        if self.key.topic == "__transaction_state":
            held.finish(ErrorCode.NONE)

    patch.setattr(StatePartition, "_hold_appended", hold_appended)


@rule("hanging", "lost", style="decisions", seconds=SHORT)
def a_loaded_coordinator_does_not_end_decided_transactions(patch: pytest.MonkeyPatch) -> None:
    def on_loaded(self: Any) -> None:
        self._is_active = True
        self._start_timers()

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


@rule("lost", "torn", "hanging", "offset behind", INVARIANT, style="decisions")
def a_loading_coordinator_forgets_decisions(patch: pytest.MonkeyPatch) -> None:
    """A transaction whose commit was decided is open again, and is aborted."""

    def read(transactional_id: str, value: bytes) -> TransactionMetadata:
        found = read_transaction(transactional_id, value)
        if found.state is TransactionState.PREPARE_COMMIT:
            return msgspec.structs.replace(found, state=TransactionState.ONGOING)
        return found

    patch.setattr(transaction_shard, "read_transaction", read)


@rule("hanging", style="timeouts", seconds=LONG)
def transactions_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_shard, "_is_timed_out", lambda *_: False)


@rule(
    "hanging",
    "zombie",
    "torn",
    "aborted read",
    "intermediate read",
    "lost",
    INVARIANT,
    style="fencing",
)
def initialization_forgets_the_open_transaction(patch: pytest.MonkeyPatch) -> None:
    """The open transaction of the earlier producer is not aborted: no producer ends it."""
    real = TransactionShard.initialize

    def initialize(self: Any, request: Any, new_producer_id: Any) -> Any:
        metadata = self.transactions.get(request.transactional_id)
        if metadata is not None and metadata.state is TransactionState.ONGOING:
            self.transactions[request.transactional_id] = msgspec.structs.replace(
                metadata, state=TransactionState.EMPTY, partitions=frozenset()
            )
        return real(self, request, new_producer_id)

    patch.setattr(TransactionShard, "initialize", initialize)


# Offsets of groups.


@rule("offset ahead", "offset behind", "offset went back", style="fencing", seconds=SHORT)
def offsets_take_effect_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    def put(self: OffsetStore, offset: int, _producer: int, place: Any, value: Any) -> None:
        self.put(offset, *place, value)

    patch.setattr(OffsetStore, "put_transactional", put)


@rule("offset behind", style="kills", seconds=LONG)
def stable_reads_pass_markers_that_are_not_replicated(patch: pytest.MonkeyPatch) -> None:
    def unstable(self: OffsetStore, group_id: str) -> set[Any]:
        return {key for places in self._open.values() for of, key in places if of == group_id}

    patch.setattr(OffsetStore, "unstable", unstable)


@rule("offset behind", "offset went back", style="kills")
def reads_of_offsets_are_never_stable(patch: pytest.MonkeyPatch) -> None:
    real = OffsetRequests._group_offsets
    patch.setattr(
        OffsetRequests, "_group_offsets", lambda self, group_id, _: real(self, group_id, False)
    )


@rule("offset behind", seconds=SHORT)
def offsets_of_a_committed_transaction_are_dropped(patch: pytest.MonkeyPatch) -> None:
    real = OffsetStore.end_transaction
    patch.setattr(
        OffsetStore,
        "end_transaction",
        lambda self, offset, producer_id, _: real(self, offset, producer_id, False),
    )


@rule("offset ahead", style="fencing", seconds=SHORT)
def offsets_of_an_aborted_transaction_take_effect(patch: pytest.MonkeyPatch) -> None:
    real = OffsetStore.end_transaction
    patch.setattr(
        OffsetStore,
        "end_transaction",
        lambda self, offset, producer_id, _: real(self, offset, producer_id, True),
    )


@rule("offset went back", "offset behind", "processed twice", style="isolations", seconds=LONG)
def stable_reads_do_not_check_for_another_coordinator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OffsetRequests, "confirm", lambda self, partitions, on_done: on_done({}))


# The producer's client.


@rule("torn", "lost", "intermediate read", seconds=SHORT)
def the_client_commits_before_its_records_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    real = TransactionManager.advance

    def advance(self: TransactionManager) -> None:
        if self.state in (client_manager._S.COMMITTING, client_manager._S.ABORTING):
            batches, self._batches = self._batches, Idle(self._batches)  # type: ignore[assignment]
            try:
                real(self)
            finally:
                self._batches = batches
        else:
            real(self)

    patch.setattr(TransactionManager, "advance", advance)


rule("hanging", seconds=SHORT)(stop_after_a_failure)


class Idle:
    """Batches that are said to be acknowledged."""

    has_incomplete = False

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def findings(seed: int, style: str, seconds: float = SECONDS) -> set[str]:
    """Play one run; return the kinds of what is found."""
    try:
        return set(Walk(seed, STYLES[style]).play(seconds).counts)
    except AssertionError as error:
        print(f"seed {seed}: {error}"[:500])
        return {INVARIANT}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_unless(lambda name: name not in SLOWEST, RULES))
def test_a_disabled_rule_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken, kinds, style, seconds = RULES[name]
    weaken(monkeypatch)
    seen: list[set[str]] = []
    for seed in SEEDS:
        seen.append(findings(seed, style, seconds))
        if seen[-1] & kinds:
            print(f"{name}: seed {seed}: {', '.join(sorted(seen[-1]))}")
            return
    pytest.fail(f"not noticed; found by seed: {seen}")


@pytest.mark.slow
@pytest.mark.parametrize("style", nightly_unless(CORRECT_STYLES.__contains__, STYLES))
@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 1, CORRECT_SEEDS))
def test_nothing_is_found_with_all_rules(seed: int, style: str) -> None:
    assert findings(seed, style) == set()


@pytest.mark.slow
def test_errors_of_single_requests_between_brokers_cause_no_findings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = fail_some_requests(monkeypatch)
    assert findings(1, "mixed", SHORT) == set()
    assert failed >= {"WriteTxnMarkersRequest", "AddPartitionsToTxnRequest"}


def test_there_are_at_least_fifteen_rules() -> None:
    assert len(RULES) > 15
    assert RULES.keys() > SLOWEST
