"""Each class of reasons why a partition makes no progress, and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from barnabas.cli.admin.held_back import NO_TIMEOUT_MS, HeldBack, Owner
from barnabas.cli.common.machine_lines import Machine
from barnabas.cli.why.facts import BrokerFacts
from barnabas.cli.why.group_reasons import offset_reasons
from barnabas.cli.why.partition_reasons import cluster_reasons, partition_reasons
from barnabas.cli.why.reasons import Reason, duration
from barnabas.client.admin.partitions import ActiveProducer, Reassignment
from barnabas.client.admin.transactions import TransactionDescription
from barnabas.client.errors import BrokerError, DisconnectedError, broker_error
from barnabas.protocol.errors import ErrorCode
from unit.cli.partition_facts import NOW_MS, TP, facts, snapshot

SILENCE = DisconnectedError("h:3", "no answer")


def kinds(reasons: list[Reason]) -> list[str]:
    for reason in reasons:
        assert reason.what
        assert reason.remedy or reason.verdict != "wrong", reason
    return [reason.kind for reason in reasons]


def without(*brokers: int, **more: Any) -> BrokerFacts:
    return BrokerFacts(frozenset({1, 2, 3} - set(brokers)), controller=1, **more)


def test_a_healthy_partition_has_no_problem() -> None:
    (reason,) = partition_reasons(facts(snapshot({1: 9, 2: 9, 3: 9}, 9)))
    assert (reason.kind, reason.verdict) == ("well", "ok")


# No leader


def test_without_a_leader_the_last_in_sync_replicas_are_named() -> None:
    now = snapshot({}, broker_error(5, "x"), isr=(2,), leader=-1)
    (reason,) = partition_reasons(facts(now, brokers=without(2, fenced=frozenset({2}))))
    assert reason.kind == "no-leader"
    assert "Only 2 certainly has all committed records (2 is fenced)" in reason.what
    assert "start broker 2" in reason.remedy
    assert "elect --unclean orders:0` lets 1, 3 lead" in reason.remedy


def test_eligible_leaders_count_as_complete() -> None:
    now = snapshot({}, broker_error(5, "x"), isr=(), leader=-1, elr=(3, 2))
    (reason,) = partition_reasons(facts(now, brokers=without(2, 3)))
    assert "3 is gone, 2 is gone" in reason.what
    assert "start one of the brokers 3, 2" in reason.remedy
    now = snapshot({}, broker_error(5, "x"), isr=(), leader=-1, last_known_elr=(1,))
    (reason,) = partition_reasons(facts(now, brokers=without(1)))
    assert "start broker 1" in reason.remedy


def test_a_leader_that_does_not_answer_is_reported() -> None:
    now = snapshot({1: SILENCE, 2: 9, 3: 9}, SILENCE)
    (reason,) = partition_reasons(facts(now, brokers=replace(without(), silent={1: SILENCE})))
    assert (reason.kind, reason.verdict) == ("leader-silent", "wrong")
    assert "no answer" in reason.what


def test_a_leader_without_disk_or_not_started_is_reported() -> None:
    lost = broker_error(ErrorCode.KAFKA_STORAGE_ERROR, "x")
    now = snapshot({1: lost, 2: 9, 3: 9}, lost)
    assert kinds(partition_reasons(facts(now))) == ["leader-disk-failed"]
    early = broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x")
    now = snapshot({1: early, 2: 9, 3: 9}, early)
    (reason,) = partition_reasons(facts(now))
    assert (reason.kind, reason.verdict) == ("leader-not-ready", "note")


# The high watermark


def test_a_stalled_isr_member_holds_back_the_watermark() -> None:
    now = snapshot({1: 120, 2: 120, 3: 100}, 100)
    (reason,) = partition_reasons(facts(now, uncommitted_since_ms=NOW_MS - 4_000))
    assert reason.kind == "isr-member-stalled"
    assert "broker 3" in reason.what
    assert "20 records are not committed, the oldest was written 4.0 s ago" in reason.what
    assert "30 s" in reason.remedy


def test_a_slow_or_missing_isr_member_is_reported() -> None:
    now = snapshot({1: 900, 2: 900, 3: 300}, 300)
    before = snapshot({1: 800, 2: 800, 3: 100}, 300)
    (reason,) = partition_reasons(facts(now, before))
    assert reason.kind == "isr-member-slow"
    assert "600 records behind, copying 100 records/s" in reason.what
    away = replace(without(), silent={3: SILENCE})
    now = snapshot({1: 120, 2: 120, 3: SILENCE}, 100)
    found = partition_reasons(facts(now, brokers=away, waiting_produces={"h:1": 1}))
    assert kinds(found) == ["isr-member-away"]
    assert "is registered as active but does not answer" in found[0].what
    assert "1 produce request wait at h:1" in found[0].what
    found = partition_reasons(facts(now, brokers=without(3)))
    assert "is not registered" in found[0].what


def test_fewer_in_sync_than_the_minimum_refuses_writes() -> None:
    now = snapshot({1: 120, 2: 120}, 100, isr=(1,))
    reasons = partition_reasons(facts(now, brokers=without(2, 3)))
    assert kinds(reasons) == ["under-min-isr", "replica-gone", "replica-gone"]
    assert "min.insync.replicas is 2" in reasons[0].what
    assert "20 records are not committed" in reasons[0].what
    # Refused even where nothing waits.
    now = snapshot({1: 100}, 100, isr=(1,))
    assert kinds(partition_reasons(facts(now)))[0] == "under-min-isr"


def test_an_advancing_high_watermark_is_no_problem() -> None:
    now = snapshot({1: 120, 2: 115, 3: 110}, 110)
    before = snapshot({1: 20, 2: 15, 3: 10}, 10)
    assert kinds(partition_reasons(facts(now, before))) == ["well", "watermark-moves"]


def test_a_proposed_isr_member_is_considered() -> None:
    now = snapshot({1: 120, 2: 120, 3: 100}, 100, isr=(1, 2))
    found = partition_reasons(facts(now))
    assert found[0].kind == "isr-change-in-flight"
    assert "add 3 to the ISR" in found[0].what
    now = snapshot({1: 120, 2: 120, 3: 120}, 100)
    assert kinds(partition_reasons(facts(now))) == ["watermark-late"]


def test_a_new_leader_without_a_high_watermark_is_reported() -> None:
    unknown = broker_error(ErrorCode.OFFSET_NOT_AVAILABLE, "x")
    (reason,) = partition_reasons(facts(snapshot({1: 9, 2: 9, 3: 9}, unknown)))
    assert (reason.kind, reason.verdict) == ("new-leader", "note")


# The ISR


@pytest.mark.parametrize(
    ("brokers", "kind"),
    [
        (without(3), "replica-gone"),
        (without(3, fenced=frozenset({3})), "replica-fenced"),
        (replace(without(), silent={3: SILENCE}), "replica-silent"),
    ],
)
def test_a_replica_of_a_missing_broker_is_reported(brokers: BrokerFacts, kind: str) -> None:
    now = snapshot({1: 9, 2: 9, 3: SILENCE}, 9, isr=(1, 2))
    (reason,) = partition_reasons(facts(now, brokers=brokers))
    assert (reason.kind, reason.verdict) == (kind, "wrong")


def test_a_replica_on_a_failed_disk_is_reported() -> None:
    now = snapshot({1: 9, 2: 9, 3: broker_error(3, "x")}, 9, isr=(1, 2))
    (reason,) = partition_reasons(facts(now, failed_directories={3: "/disk: gone"}))
    assert reason.kind == "replica-disk-failed"
    assert "/disk: gone" in reason.what
    lost = broker_error(ErrorCode.KAFKA_STORAGE_ERROR, "x")
    now = snapshot({1: 9, 2: 9, 3: lost}, 9, isr=(1, 2))
    assert kinds(partition_reasons(facts(now))) == ["replica-disk-failed"]


def test_a_replica_that_has_not_started_is_reported() -> None:
    early = broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x")
    now = snapshot({1: 9, 2: 9, 3: early}, 9, isr=(1, 2))
    (reason,) = partition_reasons(facts(now))
    assert (reason.kind, reason.verdict) == ("replica-not-begun", "note")


def test_a_stalled_catching_up_or_slow_replica_is_distinguished() -> None:
    now = snapshot({1: 500, 2: 500, 3: 100}, 500, isr=(1, 2))
    (reason,) = partition_reasons(
        facts(now, behind_since_ms={3: NOW_MS - 300_000}, failed_fetches={"h:3": 2})
    )
    assert reason.kind == "replica-stalled"
    assert "400 records behind" in reason.what
    assert "written 5 min ago" in reason.what
    assert "h:3 counts 2 partitions" in reason.what
    before = snapshot({1: 500, 2: 500, 3: 50}, 500, isr=(1, 2))
    (reason,) = partition_reasons(facts(now, before))
    assert (reason.kind, reason.verdict) == ("replica-catches-up", "note")
    assert "about 16 s more" in reason.what
    before = snapshot({1: 400, 2: 400, 3: 50}, 400, isr=(1, 2))
    (reason,) = partition_reasons(facts(now, before))
    assert reason.kind == "replica-too-slow"
    assert "25 records/s while 50 are written" in reason.what


def test_a_replica_that_has_caught_up_is_about_to_join() -> None:
    now = snapshot({1: 9, 2: 9, 3: 9}, 9, isr=(1, 2))
    (reason,) = partition_reasons(facts(now))
    assert (reason.kind, reason.verdict) == ("replica-caught-up", "note")


def test_a_throttled_replica_is_reported() -> None:
    now = snapshot({1: 500, 2: 500, 3: 100}, 500, isr=(1, 2))
    brokers = replace(without(), follower_rates={3: 1000})
    found = partition_reasons(facts(now, brokers=brokers, throttled_followers=frozenset({3})))
    assert kinds(found) == ["replica-throttled"]
    # A rate alone does not throttle a replica that is not listed.
    assert kinds(partition_reasons(facts(now, brokers=brokers))) == ["replica-stalled"]


def test_a_removed_and_an_added_replica_are_reported() -> None:
    moving = Reassignment((1, 2, 3), (), (3,))
    now = snapshot({1: 9, 2: 9, 3: 5}, 9, isr=(1, 2), reassignment=moving)
    found = partition_reasons(facts(now))
    assert kinds(found) == ["replica-leaves", "reassignment"]
    assert {reason.verdict for reason in found} == {"note"}


def test_a_leader_that_is_not_preferred_is_reported() -> None:
    (reason,) = partition_reasons(facts(snapshot({1: 9, 2: 9, 3: 9}, 9, leader=2)))
    assert (reason.kind, reason.verdict) == ("not-preferred", "note")


# Transactions


def producer(start: int, producer_id: int = 77) -> ActiveProducer:
    return ActiveProducer(producer_id, 3, 9, NOW_MS - 60_000, 1, start)


def owner(state: str = "Ongoing", **changes: Any) -> Owner:
    described = TransactionDescription(2, state, 77, 3, 90_000, NOW_MS - 70_000, (TP,))
    return Owner("pay 1", replace(described, **changes))


def held(
    *producers: ActiveProducer, owners: Mapping[int, Owner] | None = None, **more: Any
) -> HeldBack:
    return HeldBack(TP, 40, 100, NOW_MS, producers, owners or {}, **more)


def reason_for(found: HeldBack) -> Reason:
    now = snapshot({1: 100, 2: 100, 3: 100}, 100)
    (reason,) = partition_reasons(facts(now, last_stable_offset=40, held_back=found))
    assert "no records from 40 on, 60 offsets below" in reason.what
    return reason


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    reason = reason_for(held(producer(40), producer(60, 78), owners={77: owner()}))
    assert (reason.kind, reason.verdict) == ("transaction-open", "note")
    assert "transactional id pay 1 (Ongoing at its coordinator, broker 2, for 70 s of its" in (
        reason.what
    )
    assert "timeout of 90 s): producer id 77 epoch 3 has had a transaction open" in reason.what
    assert "since offset 40 and wrote last 60 s ago; 1 more is open" in reason.what
    assert reason.remedy.endswith("barnabas transactions terminate 'pay 1'")


def test_a_transaction_with_two_phase_commit_has_no_timeout() -> None:
    reason = reason_for(held(producer(40), owners={77: owner(timeout_ms=NO_TIMEOUT_MS)}))
    assert "for 70 s without timeout" in reason.what
    assert "two-phase commit" in reason.remedy


def test_a_transaction_whose_result_is_decided_ends_by_itself() -> None:
    reason = reason_for(held(producer(40), owners={77: owner("PrepareCommit")}))
    assert (reason.kind, reason.verdict) == ("transaction-ends", "note")
    assert "terminate" not in reason.remedy
    assert kinds([reason_for(held())]) == ["transaction-ends"]


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        ({}, "no coordinator knows it"),
        ({77: owner("CompleteCommit")}, "transactional id pay 1 is CompleteCommit"),
        ({77: owner(partitions=())}, "broker 2, does not have it open"),
        ({77: owner(producer_id=80)}, "broker 2, does not have it open"),
    ],
)
def test_a_transaction_that_no_coordinator_ends_is_aborted_in_the_partition(
    owners: Mapping[int, Owner], words: str
) -> None:
    reason = reason_for(held(producer(40), owners=owners))
    assert (reason.kind, reason.verdict) == ("transaction-hangs", "wrong")
    assert words in reason.what
    assert reason.remedy.endswith("barnabas transactions abort --start-offset 40 orders:0")


def test_a_coordinator_that_does_not_answer_is_no_reason_to_abort() -> None:
    silent = Owner("pay", SILENCE)
    for found in (held(producer(40), error=SILENCE), held(producer(40), owners={77: silent})):
        reason = reason_for(found)
        assert (reason.kind, reason.verdict) == ("transaction-open", "note")
        assert "does not answer" in reason.what
        assert "barnabas transactions" not in reason.remedy


# Offsets


@pytest.mark.parametrize(
    ("offset", "found", "expected"),
    [
        (5, None, ["below-log-start"]),
        (10, 10, ["readable"]),
        (10, 14, ["no-record"]),
        (10, None, ["no-record"]),
        (45, 45, ["readable", "transaction-hangs"]),
        (60, None, ["not-committed", "isr-member-stalled", "transaction-hangs"]),
        (80, None, ["not-written"]),
        (99, None, ["not-written"]),
    ],
)
def test_an_offset_is_deleted_uncommitted_readable_or_unwritten(
    offset: int, found: int | None, expected: list[str]
) -> None:
    now = snapshot({1: 80, 2: 80, 3: 60}, 60)
    given = facts(now, log_start=8, last_stable_offset=40, held_back=held(producer(40)))
    assert kinds(offset_reasons(given, offset, found)) == expected


def test_an_offset_in_a_partition_without_a_leader_is_reported() -> None:
    now = snapshot({}, broker_error(5, "x"), isr=(2,), leader=-1)
    assert kinds(offset_reasons(facts(now, brokers=without(2)), 4, None)) == ["no-leader"]


# The cluster


def test_problems_of_the_whole_cluster_are_reported() -> None:
    assert cluster_reasons(without()) == []
    brokers = BrokerFacts(frozenset({1}), frozenset({2}), {1: SILENCE}, {}, None)
    assert kinds(cluster_reasons(brokers)) == ["no-controller", "broker-silent", "brokers-fenced"]


def test_a_machine_of_several_brokers_is_named_while_one_of_them_is_down() -> None:
    machines = [Machine("a", (1, 2), (), {2: None}), Machine("b", (3, 4), (), {})]
    brokers = BrokerFacts(frozenset({1, 3, 4}), frozenset({2}), controller=1, machines=machines)
    reasons = cluster_reasons(brokers)
    assert kinds(reasons) == ["brokers-fenced", "machine"]
    assert reasons[-1].what.startswith("machine a: brokers 1, 2 · 1 of 2 brokers serves")


def test_durations_are_formatted_as_text() -> None:
    lengths = [duration(1000 * seconds) for seconds in (0, 9, 90, 600, 7200, 200_000)]
    assert lengths == ["0.0 s", "9.0 s", "90 s", "10 min", "2 h", "2 days"]


def test_an_error_response_is_not_a_missing_response() -> None:
    assert isinstance(broker_error(6, "x"), BrokerError)
    assert without().condition(2) == "serves"
    assert without(2).condition(2) == "gone"
