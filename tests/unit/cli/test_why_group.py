"""Each class of reasons why group members wait, and its facts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.why import gather_group
from barnabas.cli.why.facts import BrokerFacts, FetchQuota, GroupFacts, ReaderFacts
from barnabas.cli.why.gather_group import lowest_fetch_quotas
from barnabas.cli.why.group_reasons import group_reasons
from barnabas.cli.why.reasons import Reason
from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.errors import CorruptRecordsError, DisconnectedError, broker_error
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BROKERS = BrokerFacts(frozenset({1, 2, 3}), controller=1)


def member(name: str, *assignment: TopicPartition, **more: Any) -> GroupMember:
    return GroupMember(f"{name}-1", None, name, "10.0.0.1", ("t",), assignment, **more)


def described(state: str, *members: GroupMember, kind: str = "classic", epoch: int = -1) -> Any:
    return GroupDescription("g", kind, state, "consumer", "range", members, epoch)


def reader(position: int | None, **more: Any) -> ReaderFacts:
    given = {"before": position, "leader": 1, "log_start": 0, "last_stable_offset": 100}
    given |= {"high_watermark": 100, "end": 100, "reader": "a at 10.0.0.1", "client_id": "a"}
    return ReaderFacts(ZERO, now=position, **{**given, **more})


def group(description: Any, *readers: ReaderFacts, **more: Any) -> GroupFacts:
    coordinator = more.pop("coordinator", 1)
    return GroupFacts("g", description, coordinator, BROKERS, 2.0, readers, **more)


def kinds(reasons: list[Reason]) -> list[str]:
    for reason in reasons:
        assert reason.what
        assert reason.remedy or reason.verdict != "wrong", reason
    return [reason.kind for reason in reasons]


STABLE = described("Stable", member("a", ZERO))


def test_a_group_that_has_read_everything_has_no_problem() -> None:
    (reason,) = group_reasons(group(STABLE, reader(100)))
    assert (reason.kind, reason.verdict) == ("nothing-to-read", "ok")
    assert kinds(group_reasons(group(described("Stable", member("a"))))) == [
        "members-idle",
        "nothing-to-read",
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "coordinator-loads"),
        (ErrorCode.NOT_COORDINATOR, "coordinator-moves"),
    ],
)
def test_a_coordinator_that_is_not_ready_is_reported(code: ErrorCode, kind: str) -> None:
    (reason,) = group_reasons(group(broker_error(code, "g")))
    assert (reason.kind, reason.verdict) == (kind, "note")


def test_a_missing_coordinator_is_reported() -> None:
    silence = DisconnectedError("h:1", "no answer")
    assert kinds(group_reasons(group(silence))) == ["coordinator-silent"]
    none = broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "g")
    (reason,) = group_reasons(group(none, coordinator=none))
    assert reason.kind == "no-coordinator"
    assert "barnabas why --topic __consumer_offsets" in reason.remedy
    assert kinds(group_reasons(group(silence, coordinator=silence))) == ["coordinator-unknown"]


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "DESCRIBE on the group"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE on all topics of the group"),
    ],
)
def test_a_group_that_the_user_may_not_see_is_a_matter_of_rights(
    code: ErrorCode, subject: str
) -> None:
    refused = broker_error(code, "g")
    for coordinator in (1, refused):
        (reason,) = group_reasons(group(refused, coordinator=coordinator))
        assert (reason.kind, reason.verdict) == ("not-allowed", "wrong")
        assert reason.what.endswith(subject)
        assert "barnabas acls why User:NAME describe --group g" in reason.remedy


def test_a_missing_group_is_reported() -> None:
    assert kinds(group_reasons(group(described("Dead")))) == ["no-such-group"]


def test_a_group_without_members_is_reported() -> None:
    (reason,) = group_reasons(group(described("Empty"), reader(60, reader="", client_id="")))
    assert reason.kind == "no-members"
    assert "a lag of 40 records" in reason.what
    found = group_reasons(group(described("Empty"), reader(100, reader="", client_id="")))
    assert [reason.verdict for reason in found] == ["note", "ok"]


def test_a_rebalance_of_the_classic_protocol_is_reported() -> None:
    found = group_reasons(group(described("PreparingRebalance", member("a"), member("b"))))
    assert kinds(found)[0] == "rebalance-preparing"
    assert "a at 10.0.0.1, b at 10.0.0.1" in found[0].what
    found = group_reasons(group(described("CompletingRebalance", member("a"), member("b"))))
    assert kinds(found)[0] == "rebalance-completing"


def test_a_rebalance_of_the_new_protocol_names_the_delaying_member() -> None:
    holding = member("a", ZERO, ONE, target=(ZERO,), epoch=4)
    waiting = member("b", target=(ONE,), epoch=4)
    state = described("Reconciling", holding, waiting, kind="consumer", epoch=5)
    found = group_reasons(group(state, reader(100)))
    assert kinds(found)[:2] == ["member-gives-up", "member-behind"]
    assert "a at 10.0.0.1 still has t-1" in found[0].what
    assert "b at 10.0.0.1 is at epoch 4 of 5" in found[1].what


def test_idle_members_missing_topics_and_unread_partitions_are_reported() -> None:
    state = described("Stable", member("a", ZERO), member("b"))
    found = group_reasons(group(state, reader(100), missing_topics=frozenset({"u"}), unread=[ONE]))
    assert kinds(found) == ["members-idle", "topic-missing", "partitions-unread"]
    assert "b at 10.0.0.1" in found[0].what
    assert "t-1" in found[2].what


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (reader(60, leader=-1), "partition-unavailable"),
        (reader(60, high_watermark=None), "partition-unavailable"),
        (reader(None), "never-committed"),
        (reader(5, log_start=10), "below-log-start"),
        (reader(120), "beyond-end"),
        (reader(120, end=130), "beyond-watermark"),
        (reader(100, end=130), "not-committed"),
        (reader(60, last_stable_offset=60), "open-transaction"),
        (reader(60, before=40), "reads"),
        (reader(60), "reader-stalled"),
    ],
)
def test_a_partition_without_progress_is_reported(facts: ReaderFacts, kind: str) -> None:
    assert kind in kinds(group_reasons(group(STABLE, facts)))


def test_a_reading_member_has_a_rate() -> None:
    found = group_reasons(group(STABLE, reader(60, before=40)))
    assert "10 records/s, 40 are left, about 4.0 s" in found[0].what
    assert found[0].verdict == "ok"


def test_a_quota_explains_a_reader_that_is_slow() -> None:
    facts = group(STABLE, reader(60))
    quota = FetchQuota("user ann", 1000.0)
    (reason,) = group_reasons(replace(facts, fetch_quotas={"a": quota}))
    assert kinds([reason]) == ["quota"]
    assert "user ann may fetch 1000 bytes/s" in str(reason)
    assert kinds(group_reasons(replace(facts, fetch_quotas={"b": quota}))) == ["reader-stalled"]


def test_the_lowest_quota_that_may_apply_is_named() -> None:
    def quotas(*given: tuple[dict[str, str | None], float]) -> dict[str, FetchQuota]:
        return lowest_fetch_quotas(
            {tuple(sorted(e.items())): {"consumer_byte_rate": rate} for e, rate in given}, ["a"]
        )

    assert quotas(({"client-id": "b"}, 1.0), ({"user": "ann", "client-id": "b"}, 1.0)) == {}
    default: tuple[dict[str, str | None], float] = ({"client-id": None}, 5.0)
    assert quotas(default) == {"a": FetchQuota("client id a", 5.0)}
    # The default does not apply to a client id with its own quota.
    assert quotas(default, ({"client-id": "a"}, 9.0)) == {"a": FetchQuota("client id a", 9.0)}
    assert quotas(default, ({"user": None}, 2.0)) == {"a": FetchQuota("each user", 2.0)}
    assert quotas(default, ({"user": "ann", "client-id": None}, 3.0)) == {
        "a": FetchQuota("user ann with client id a", 3.0)
    }


# The measurement


class ReadingGroup:
    """A cluster with one group in virtual time; its member commits at these times (s)."""

    def __init__(
        self, clock: list[float], commits: list[float], error: Exception | None = None
    ) -> None:
        self._clock = clock
        # The error of a consumer at the committed offset.
        self._error = error
        self._commits = commits
        self.admin = SimpleNamespace(
            coordinators=lambda names: dict.fromkeys(names, 1),
            describe_groups=lambda names, once: dict.fromkeys(names, STABLE),
            list_offsets=self._ends,
            list_replica_offsets=lambda wanted: {
                leader: self._ends(partitions) for leader, partitions in wanted.items()
            },
            describe_quotas=lambda _filter: {},
        )

    def committed(self, _group: str) -> dict[TopicPartition, CommittedOffset]:
        count = sum(at <= self._clock[0] for at in self._commits)
        return {ZERO: CommittedOffset(10 * count, -1, "")}

    def describe_topics(self) -> dict[str, TopicInfo]:
        return {"t": TopicInfo("t", bytes(16), False, {0: PartitionInfo(0, 1, 3, (1,), (1,))})}

    @contextlib.contextmanager
    def stream(self, _ranges: object) -> Iterator[Any]:
        if self._error is not None:
            raise self._error
        yield SimpleNamespace(records=lambda: iter([SimpleNamespace(offset=0)]))

    def _ends(self, wanted: Any, **_: Any) -> dict[TopicPartition, ListedOffset]:
        ends = {"earliest": 0}
        return {tp: ListedOffset(ends.get(spec, 100), -1, -1) for tp, spec in wanted.items()}


def measured(
    monkeypatch: pytest.MonkeyPatch, *commits: float, error: Exception | None = None
) -> tuple[Reason, float]:
    """Return the reason for a group, and how long the measurement took."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    virtual = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr(gather_group, "time", virtual)
    monkeypatch.setattr(gather_group, "gather_brokers", lambda *_: BROKERS)
    client: Any = ReadingGroup(clock, list(commits), error)
    (facts,) = gather_group.gather_groups(client, ["g"], 2.0)
    (reason,) = group_reasons(facts)
    return reason, clock[0]


def test_a_member_with_the_default_commit_interval_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, elapsed = measured(monkeypatch, 4.9)
    assert (reason.kind, reason.verdict) == ("reads", "ok")
    assert elapsed == 5.0


def test_a_member_that_commits_at_once_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, elapsed = measured(monkeypatch, 1.0)
    assert (reason.kind, elapsed) == ("reads", 2.0)


def test_a_member_that_does_not_commit_is_stalled_after_a_commit_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason, elapsed = measured(monkeypatch)
    assert (reason.kind, reason.verdict) == ("reader-stalled", "wrong")
    assert elapsed == 6.5
    assert "`barnabas consume -p 0 --from 0 -n 1 t` shows the record" in reason.remedy


def test_records_that_no_consumer_can_read_are_skipped_by_their_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrupt = CorruptRecordsError(ZERO, 0, "the CRC does not match", 3)
    reason, _ = measured(monkeypatch, error=corrupt)
    assert (reason.kind, reason.verdict) == ("unreadable", "wrong")
    assert "records from offset 0 on: the CRC does not match" in reason.what
    assert "`barnabas log verify DIRECTORY` on broker 1" in reason.remedy
    assert "`barnabas groups reset --topic t:0 --to-offset 3 g`" in reason.remedy


def test_a_consumer_that_gets_no_response_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, _ = measured(monkeypatch, error=DisconnectedError("h:1", "no answer"))
    assert reason.kind == "reader-stalled"


def test_a_group_that_never_committed_has_no_known_lag() -> None:
    found = group_reasons(group(STABLE, reader(None)))
    assert "its lag is unknown" in found[-1].what


def test_a_measurement_shorter_than_a_commit_interval_is_no_problem() -> None:
    (reason,) = group_reasons(group(STABLE, reader(60)))
    assert (reason.kind, reason.verdict) == ("reader-stalled", "note")


def test_members_are_stopped_before_their_offsets_are_moved() -> None:
    (reason,) = group_reasons(group(STABLE, reader(120)))
    assert "stop all members, then `barnabas groups reset --topic t:0 --to-latest g`" in str(reason)
    found = group_reasons(group(described("Empty"), reader(120, reader="")))
    assert "stop all members" not in str(found)
