"""Each rule of consumer groups and share groups is disabled in turn, and the checkers must find it.

Three simulated brokers run with members and faults (`simulation.groups`). With all rules, the
checkers find nothing in these runs. Without one rule, they find a fault, or an invariant of the
product fails. The rules that need longer walks are for `make nightly`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from barnabas.coordinator.group import offset_changes
from barnabas.coordinator.group.consumer import (
    consumer_membership,
    consumer_targets,
    heartbeats,
)
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_membership import ConsumerMembership
from barnabas.coordinator.group.consumer.consumer_shard import ConsumerTimers
from barnabas.coordinator.group.group_base import JOIN_EPOCH
from barnabas.coordinator.group.group_map import GroupMap
from barnabas.coordinator.group.offset_changes import check_consumer_commit
from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.share.share_shard import ShareStateShard
from barnabas.protocol.errors import ErrorCode
from barnabas.server.share.records import acknowledgement, record_states, share_records
from barnabas.server.share.records.acknowledgement import Acknowledgement
from barnabas.server.share.records.in_flight_records import InFlightRecords
from barnabas.server.share.records.record_states import RENEW, RecordRun, RecordState
from barnabas.server.share.records.share_records import LockTimeouts
from barnabas.server.share.share_partition import SharePartition
from barnabas.server.share.state_writer import StateWriter
from chaos.groups import member_checker, share_checker
from selection import nightly_rows_unless, nightly_unless
from simulation.groups import member_walk, share_walk

pytestmark = pytest.mark.seeded

# A weakened rule must be found by one of these seeds. Most rules are found by the first one.
SEEDS = range(1, 7)
CORRECT_SEED = 1
# Virtual seconds of one run. A rule that needs no fault of the cluster is found in fewer.
SECONDS, SHORT = 5.0, 2.0
INVARIANT = "invariant"

Weaken = Callable[[pytest.MonkeyPatch], None]


class Rule(NamedTuple):
    """How to leave a rule out, and how that shows."""

    weaken: Weaken
    # At least one of these findings must be there.
    kinds: frozenset[str]
    # Whether it is a rule of share groups; else of consumer groups.
    is_shared: bool
    # Style of the walks, and their length in virtual seconds.
    style: str
    seconds: float
    # Whether only `make nightly` tests it.
    is_long: bool = False


RULES: dict[str, Rule] = {}


def share_rule(
    *kinds: str, style: str, seconds: float = SECONDS, is_long: bool = False
) -> Callable[[Weaken], Weaken]:
    """Add a weakened rule of share groups, named after its function."""
    assert set(kinds) <= {*share_checker.KINDS, INVARIANT}
    return _register(Rule(_unset, frozenset(kinds), True, style, seconds, is_long))


def member_rule(
    *kinds: str, style: str, seconds: float = SECONDS, is_long: bool = False
) -> Callable[[Weaken], Weaken]:
    """Add a weakened rule of consumer groups, named after its function."""
    assert set(kinds) <= {*member_checker.KINDS, INVARIANT}
    return _register(Rule(_unset, frozenset(kinds), False, style, seconds, is_long))


def _register(rule: Rule) -> Callable[[Weaken], Weaken]:
    def register(weaken: Weaken) -> Weaken:
        RULES[weaken.__name__.replace("_", " ")] = rule._replace(weaken=weaken)
        return weaken

    return register


def _unset(_patch: pytest.MonkeyPatch) -> None:
    pass


IS_LOADING: list[bool] = []


def patch_loading(patch: pytest.MonkeyPatch) -> None:
    """Fill `IS_LOADING` while a coordinator replays its log."""
    real = Loader._replay_record

    def replay_record(*args: Any) -> None:
        IS_LOADING.append(True)
        try:
            real(*args)
        finally:
            IS_LOADING.pop()

    patch.setattr(Loader, "_replay_record", replay_record)


# Share groups: locks.


@share_rule("locked twice", style="late", seconds=SHORT)
def locks_end_before_their_time(patch: pytest.MonkeyPatch) -> None:
    real = SharePartition._limits
    patch.setattr(
        SharePartition,
        "_limits",
        lambda self: msgspec.structs.replace(real(self), lock_duration_ms=100),
    )


@share_rule("late", "locked for ever", style="late", seconds=3.0)
def locks_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    def expire(self: LockTimeouts, now_ms: float, _limits: Any) -> list[RecordRun]:
        self._entries = [each for each in self._entries if each[0] > now_ms]
        return []

    patch.setattr(LockTimeouts, "expire", expire)


@share_rule("former owner", style="late", seconds=4.0, is_long=True)
def acknowledgements_of_former_owners_are_accepted(patch: pytest.MonkeyPatch) -> None:
    real_batch, real_offsets = acknowledgement.refuse_batch, acknowledgement.refuse_offsets
    patch.setattr(acknowledgement, "refuse_batch", lambda run, _: real_batch(run, run.member_id))
    patch.setattr(
        acknowledgement, "refuse_offsets", lambda run, _: real_offsets(run, run.member_id)
    )


@share_rule("locked twice", style="renewals", seconds=3.0)
def renewals_do_not_extend_locks(patch: pytest.MonkeyPatch) -> None:
    real = Acknowledgement._change_run

    def change_run(self: Acknowledgement, run: RecordRun, kind: int) -> Any:
        return None if kind == RENEW else real(self, run, kind)

    patch.setattr(Acknowledgement, "_change_run", change_run)


# Share groups: delivery counts.


@share_rule("count went back", style="limits", seconds=SHORT)
def deliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    _count_deliveries(patch, 0)


@share_rule("count skipped", style="limits", seconds=SHORT, is_long=True)
def deliveries_are_counted_twice(patch: pytest.MonkeyPatch) -> None:
    _count_deliveries(patch, 2)


def _count_deliveries(patch: pytest.MonkeyPatch, step: int) -> None:
    real = RecordRun.acquire

    def acquire(self: RecordRun, *args: Any) -> None:
        before = self.delivery_count
        real(self, *args)
        self.delivery_count = before + (step if before else 1)

    patch.setattr(RecordRun, "acquire", acquire)


def _release_to(patch: pytest.MonkeyPatch, state_of: Callable[[int, Any], RecordState]) -> None:
    for module in (acknowledgement, record_states, share_records):
        patch.setattr(module, "released_state", state_of)


@share_rule("over the limit", style="limits", seconds=SHORT)
def records_are_delivered_beyond_the_limit(patch: pytest.MonkeyPatch) -> None:
    _release_to(patch, lambda *_: RecordState.AVAILABLE)


@share_rule("lost", style="limits", seconds=SHORT, is_long=True)
def records_are_archived_before_their_last_delivery(patch: pytest.MonkeyPatch) -> None:
    real = record_states.released_state

    def state_of(count: int, limits: Any) -> RecordState:
        fewer = msgspec.structs.replace(
            limits, delivery_count_limit=limits.delivery_count_limit - 1
        )
        return real(count, fewer)

    _release_to(patch, state_of)


# Share groups: states.


@share_rule("lost", style="calm", seconds=SHORT)
def released_records_are_archived(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acknowledgement, "released_state", lambda *_: RecordState.ARCHIVED)


@share_rule("delivered again", style="kills", is_long=True)
def states_are_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        StateWriter, "write", lambda _self, _states, on_written: on_written(ErrorCode.NONE)
    )


@share_rule("delivered again", "lost", INVARIANT, style="kills", is_long=True)
def acknowledgements_are_answered_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    real = SharePartition._write

    def write(self: SharePartition, change: Any, on_done: Any) -> None:
        if on_done is not None:
            on_done(ErrorCode.NONE, None)
        real(self, change, None)

    patch.setattr(SharePartition, "_write", write)


@share_rule("delivered again", "lost", INVARIANT, style="kills", is_long=True)
def a_new_leader_forgets_acknowledged_records(patch: pytest.MonkeyPatch) -> None:
    real = SharePartition._on_start

    def on_start(self: SharePartition, state: Any, start: Any) -> None:
        state.state_batches = []
        real(self, state, start)

    patch.setattr(SharePartition, "_on_start", on_start)


@share_rule("delivered again", style="kills", is_long=True)
def a_new_share_coordinator_forgets_updates(patch: pytest.MonkeyPatch) -> None:
    patch_loading(patch)
    real = ShareStateShard._replay_update

    def replay_update(self: ShareStateShard, *args: Any) -> None:
        if not IS_LOADING:
            real(self, *args)

    patch.setattr(ShareStateShard, "_replay_update", replay_update)


@share_rule("lost", "locked for ever", INVARIANT, style="kills", is_long=True)
def a_new_leader_skips_records_that_were_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InFlightRecords, "is_gap_window_active", property(lambda _: False))


# Consumer groups: owners.


@member_rule("owned twice", style="members")
def a_partition_is_assigned_before_its_owner_has_revoked_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "is_owned", lambda *_: False)


@member_rule("owned twice", style="members", is_long=True)
def revocations_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer_targets, "_reports_any", lambda *_: False)


@member_rule("unassigned", "unprocessed", INVARIANT, style="members", seconds=SHORT, is_long=True)
def targets_are_those_of_an_old_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new epoch keeps the targets of the epoch before: a new member gets nothing."""
    real = consumer_membership.compute_targets

    def compute_targets(group: ConsumerGroup, member: Any, *args: Any) -> Any:
        if not group.targets:
            return real(group, member, *args)
        targets = {member.member_id: {}, **group.targets}
        return targets, {}

    patch.setattr(consumer_membership, "compute_targets", compute_targets)


# Consumer groups: members that are none any more.


@member_rule("stale commit", "returned", style="members")
def epochs_are_not_checked_at_commits(patch: pytest.MonkeyPatch) -> None:
    def check(group: ConsumerGroup, request: Any) -> ErrorCode:
        error = check_consumer_commit(group, request)
        return ErrorCode.NONE if error is ErrorCode.STALE_MEMBER_EPOCH else error

    patch.setattr(offset_changes, "check_consumer_commit", check)


@member_rule("commit after leave", "returned", style="members", is_long=True)
def former_members_may_commit(patch: pytest.MonkeyPatch) -> None:
    def check(group: ConsumerGroup, request: Any) -> ErrorCode:
        error = check_consumer_commit(group, request)
        return ErrorCode.NONE if error is ErrorCode.UNKNOWN_MEMBER_ID else error

    patch.setattr(offset_changes, "check_consumer_commit", check)


@member_rule("zombie served", INVARIANT, style="members")
def fenced_members_are_served(patch: pytest.MonkeyPatch) -> None:
    real = heartbeats.find_dynamic

    def find(group: ConsumerGroup, heartbeat: Any, member_id: str) -> Any:
        if heartbeat.request.member_epoch > 0 and member_id not in group.members:
            heartbeat.request.member_epoch = JOIN_EPOCH
            heartbeat.request.rebalance_timeout_ms = 60_000
            heartbeat.request.subscribed_topic_names = ["input"]
        return real(group, heartbeat, member_id)

    patch.setattr(consumer_membership, "find_dynamic", find)


@member_rule("zombie served", "unassigned", "unprocessed", style="members")
def tombstones_of_members_are_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer_membership, "member_tombstones", lambda *_: [])


@member_rule("doubled instance", style="members")
def two_members_get_one_instance_id(patch: pytest.MonkeyPatch) -> None:
    real = heartbeats.find_static

    def find(group: ConsumerGroup, heartbeat: Any, member_id: str) -> Any:
        known = group.static_member(heartbeat.request.instance_id)
        if heartbeat.request.member_epoch == JOIN_EPOCH and known is not None:
            return heartbeats.replace_static(group, heartbeat, known, member_id)
        return real(group, heartbeat, member_id)

    patch.setattr(consumer_membership, "find_static", find)


@member_rule("zombie served", "unassigned", "unprocessed", style="members", is_long=True)
def sessions_do_not_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerTimers, "restart_session", lambda *_: None)


# Consumer groups: a new coordinator.


@member_rule("expelled", style="failover")
def a_new_coordinator_forgets_members(patch: pytest.MonkeyPatch) -> None:
    patch_loading(patch)
    real = GroupMap.replay

    def replay(self: GroupMap, *args: Any) -> None:
        if not IS_LOADING:
            real(self, *args)

    patch.setattr(GroupMap, "replay", replay)


@member_rule("zombie served", "unassigned", "unprocessed", style="failover", is_long=True)
def sessions_are_not_armed_after_loading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerMembership, "start_timers", lambda *_: None)


@member_rule(
    "zombie served",
    "unassigned",
    "unprocessed",
    "expelled",
    INVARIANT,
    style="failover",
    is_long=True,
)
def a_new_coordinator_ignores_tombstones(patch: pytest.MonkeyPatch) -> None:
    """Members that have left are back after a change of the coordinator."""
    patch_loading(patch)
    real = GroupMap.replay

    def replay(self: GroupMap, record_type: int, key: bytes, value: bytes | None) -> None:
        if not IS_LOADING or value is not None:
            real(self, record_type, key, value)

    patch.setattr(GroupMap, "replay", replay)


def findings(*, is_shared: bool, seed: int, style: str, seconds: float) -> set[str]:
    """Play one run; return the kinds of what is found."""
    try:
        if is_shared:
            return set(share_walk.ShareWalk(seed, share_walk.STYLES[style]).play(seconds).counts)
        return set(member_walk.MemberWalk(seed, member_walk.STYLES[style]).play(seconds).counts)
    except AssertionError as error:
        print(f"seed {seed}: {error}"[:500])
        return {INVARIANT}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_unless(lambda name: not RULES[name].is_long, RULES))
def test_a_disabled_rule_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES[name]
    rule.weaken(monkeypatch)
    seen: list[set[str]] = []
    for seed in SEEDS:
        found = findings(
            is_shared=rule.is_shared, seed=seed, style=rule.style, seconds=rule.seconds
        )
        seen.append(found)
        if found & rule.kinds:
            print(f"{name}: seed {seed}: {', '.join(sorted(found))}")
            return
    pytest.fail(f"not noticed; found by seed: {seen}")


# What `make check` plays of them.
CORRECT_STYLES = {(False, "members"), (True, "kills"), (True, "limits")}
STYLES_IN_USE = sorted({(rule.is_shared, rule.style) for rule in RULES.values()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_shared", "style"), nightly_rows_unless(CORRECT_STYLES.__contains__, STYLES_IN_USE)
)
def test_nothing_is_found_with_all_rules(is_shared: bool, style: str) -> None:
    found = findings(is_shared=is_shared, seed=CORRECT_SEED, style=style, seconds=SHORT)
    assert found == set()


def test_there_are_at_least_fifteen_rules() -> None:
    assert len(RULES) > 15
