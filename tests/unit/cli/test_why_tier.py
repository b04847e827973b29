"""Each reason about the remote tier of a partition, and its facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.cli.why.gather_tier import TierMetrics
from barnabas.cli.why.partition_reasons import partition_reasons
from barnabas.cli.why.tier_reasons import (
    TierFacts,
    UnreadableSpan,
    WaitingCopy,
    is_only_in_tier,
    tier_reasons,
    unread_reason,
)
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.server.remote.metadata_topic import PROBLEMS
from unit.cli.partition_facts import facts, snapshot

MIB = 1 << 20
TP = TopicPartition("orders", 0)
AT = "127.0.0.1:9308"
# Offsets 0 to 99 are only in the tier, those up to 149 in both, and the disk is within its limit.
WELL = TierFacts(
    TP,
    leader=1,
    local_retention_bytes=10 * MIB,
    segment_bytes=MIB,
    log_start=0,
    local_start=100,
    last_copied=149,
    local_bytes=5 * MIB,
)


def test_a_tier_that_works_says_what_it_has() -> None:
    [reason] = tier_reasons(WELL)
    assert (reason.kind, reason.verdict) == ("tier", "ok")
    assert reason.what == "the remote tier has offsets up to 149, and offsets 0 to 99 only there"
    [reason] = tier_reasons(replace(WELL, last_copied=None, local_start=0))
    assert (reason.verdict, reason.what) == ("ok", "the remote tier has no records yet")


def test_a_healthy_partition_stays_healthy_with_a_tier() -> None:
    found = partition_reasons(facts(snapshot({1: 9, 2: 9, 3: 9}, 9), tier=WELL))
    assert [reason.kind for reason in found] == ["well", "tier"]


@pytest.mark.parametrize("cause", CopyCause)
def test_every_cause_of_a_broker_has_a_sentence_and_a_remedy(cause: CopyCause) -> None:
    [reason] = tier_reasons(replace(WELL, waiting=WaitingCopy(AT, cause, 90.0, 150)))
    assert reason.kind == "tier-copy-waits"
    assert reason.what.startswith("the segment at offset 150 has waited 90 s ")
    passes = {"metadata", "uncommitted", "transaction", "copy-lag", "threads", "quota", "copying"}
    assert (reason.verdict == "note") is (cause.value in passes)
    assert reason.remedy or reason.verdict == "note"
    assert "{" not in reason.remedy


def test_a_cause_of_a_newer_broker_is_shown_as_it_is() -> None:
    [reason] = tier_reasons(replace(WELL, waiting=WaitingCopy(AT, "eclipse", 1.0, None)))
    assert reason.verdict == "note"
    assert "eclipse" in reason.what


def test_segments_that_cannot_be_read_come_first() -> None:
    span = UnreadableSpan(AT, "missing", 10, 19)
    found = tier_reasons(
        replace(WELL, unreadable=[span], waiting=WaitingCopy(AT, "full", 1.0, 150))
    )
    assert [reason.kind for reason in found] == ["tier-unreadable", "tier-copy-waits"]
    assert "reads of offsets 10 to 19 fail: objects of the remote tier are missing" in found[0].what


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_of_the_metadata_topic_is_wrong(problem: str) -> None:
    [reason] = tier_reasons(replace(WELL, metadata_problems=[(AT, problem)]))
    assert (reason.kind, reason.verdict) == ("tier-metadata", "wrong")
    assert "__remote_log_metadata" in reason.what


def test_a_leader_that_does_not_know_its_tier_yet_is_noted() -> None:
    [reason] = tier_reasons(replace(WELL, last_copied=None, local_bytes=100 * MIB))
    assert (reason.kind, reason.verdict) == ("tier-metadata-loading", "note")
    assert "offsets 0 to 99 cannot be read" in reason.what


def test_a_disk_above_local_retention_without_copies_is_wrong() -> None:
    held = replace(WELL, last_copied=99, local_bytes=50 * MIB)
    [reason] = tier_reasons(held)
    assert (reason.kind, reason.verdict) == ("tier-local-retention", "wrong")
    assert "holds 50.0 MiB, 40.0 MiB above local.retention.bytes" in reason.what
    assert "offsets from 100 on are not copied" in reason.what
    assert "--metrics" in reason.remedy
    waits, kept = tier_reasons(replace(held, waiting=WaitingCopy(AT, "full", 5.0, 100)))
    assert (waits.verdict, "the store is full" in waits.what) == ("wrong", True)
    assert "repair the cause above" in kept.remedy


def test_a_disk_above_local_retention_with_copies_is_noted() -> None:
    [reason] = tier_reasons(replace(WELL, local_bytes=50 * MIB))
    assert (reason.kind, reason.verdict) == ("tier-local-retention", "note")
    assert "offsets up to 149 are in the remote tier" in reason.what


@pytest.mark.parametrize(
    "more",
    [
        {"local_retention_bytes": -1},
        {"local_bytes": None},
        {"copies_disabled": True},
        {"local_bytes": 12 * MIB},
    ],
)
def test_a_disk_within_its_limits_is_not_reported(more: dict[str, object]) -> None:
    found = tier_reasons(replace(WELL, **{"last_copied": 99, "local_bytes": 50 * MIB, **more}))
    assert "tier-local-retention" not in [reason.kind for reason in found]


def test_disabled_copies_are_noted() -> None:
    waiting = WaitingCopy(AT, "copying", 1.0, 150)
    [reason] = tier_reasons(replace(WELL, copies_disabled=True, waiting=waiting))
    assert (reason.kind, reason.verdict) == ("tier-copies-disabled", "note")


def test_a_failed_read_of_the_tier_is_explained() -> None:
    assert is_only_in_tier(WELL, 0)
    assert is_only_in_tier(WELL, 99)
    assert not is_only_in_tier(WELL, 100)
    assert "offset 7 is only in the remote tier, and reading it failed: no answer" in (
        unread_reason(WELL, 7, ClientError("no answer")).what
    )
    assert "did not send it in time" in unread_reason(WELL, 7, TimeoutError()).what


def test_metrics_name_waits_and_unreadable_segments() -> None:
    where = (("partition", "0"), ("topic", "orders"))
    full = (("cause", "full"), *where)
    missing = (("kind", "missing"), *where)
    metrics = TierMetrics()
    metrics.read(
        AT,
        {
            "barnabas_remote_segment_waiting_seconds": {full: 12.5},
            "barnabas_remote_segment_waiting_offset": {where: 40.0},
            "barnabas_remote_unreadable_first_offset": {missing: 3.0},
            "barnabas_remote_unreadable_last_offset": {missing: 5.0},
            "barnabas_remote_metadata_problem": {
                (("problem", "missing"),): 1.0,
                (("problem", "partition-count"),): 0.0,
            },
        },
    )
    assert metrics.waiting == {TP: WaitingCopy(AT, "full", 12.5, 40)}
    assert metrics.unreadable == {TP: [UnreadableSpan(AT, "missing", 3, 5)]}
    assert metrics.problems == [(AT, "missing")]
    metrics.read(AT, {"something_else": {(): 1.0}})
    assert len(metrics.waiting) == 1
