"""Each class of reasons why a link or its mirror waits, and its facts."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.links.mirrors import PartitionLag
from barnabas.cli.links.status import GroupCopy, LinkStatus, MirrorStatus
from barnabas.cli.why.link_reasons import link_reasons, mirror_reasons
from barnabas.cli.why.reasons import Reason
from barnabas.replication.links.link_table import LinkDefinition, MirrorState, MirrorTopic

NOW_MS = 10_000_000
MINUTE_MS = 60_000


def lag(end: int | None, source_end: int | None, **times: int | None) -> PartitionLag:
    given: dict[str, Any] = {"responded_ms": NOW_MS, "caught_up_ms": NOW_MS, **times}
    return PartitionLag("orders", 0, end, source_end, **given)


def mirror(
    *lags: PartitionLag, state: MirrorState = MirrorState.ACTIVE, reason: str = ""
) -> MirrorStatus:
    return MirrorStatus(MirrorTopic("prod", "orders", state, reason=reason), lags)


def link(*mirrors: MirrorStatus, groups: tuple[GroupCopy, ...] = (), **more: Any) -> LinkStatus:
    definition = LinkDefinition("prod", {"bootstrap.servers": "host1:9092"}, **more)
    return LinkStatus(definition, mirrors, groups, NOW_MS)


def kinds(reasons: list[Reason]) -> list[tuple[str, str]]:
    for reason in reasons:
        assert reason.what
        assert reason.remedy or reason.verdict != "wrong", reason
    return [(reason.kind, reason.verdict) for reason in reasons]


def test_a_link_without_lag_is_well() -> None:
    shown = mirror(lag(5, 5))

    assert kinds(link_reasons(link(shown))) == [("link-well", "ok")]
    assert kinds(mirror_reasons(link(shown), shown)) == [("mirror-of-link", "ok")]


def test_a_mirror_behind_has_its_lag_and_its_limit() -> None:
    shown = mirror(lag(5, 9, caught_up_ms=NOW_MS - 4_000))

    (reason,) = mirror_reasons(link(shown, bytes_per_second=1234), shown)
    assert (reason.kind, reason.verdict) == ("mirror-behind", "note")
    assert "4 records behind its source, for 4.0 s" in reason.what
    assert "1234 bytes per second" in reason.remedy


def test_a_mirror_that_never_had_all_records_is_behind_by_its_last_record() -> None:
    shown = mirror(lag(5, 9, caught_up_ms=None, last_record_ms=NOW_MS - 9_000))

    assert shown.behind_s(NOW_MS) == 9.0


def test_one_partition_without_a_known_lag_leaves_the_lag_of_the_topic_unknown() -> None:
    shown = mirror(lag(5, 9), lag(None, None))

    assert shown.lag is None
    assert link(shown).lag is None


def test_a_silent_source_is_unreachable_with_the_time_since_its_last_response() -> None:
    shown = mirror(lag(5, 5, responded_ms=NOW_MS - 3 * MINUTE_MS))
    status = link(shown)

    assert status.state == "unreachable"
    (reason,) = link_reasons(status)
    assert (reason.kind, reason.verdict) == ("link-unreachable", "wrong")
    assert "host1:9092, has not responded for 3 min, for example to orders-0" in reason.what
    assert "promote --force --topic orders prod" in reason.remedy
    assert ("link-unreachable", "wrong") in kinds(mirror_reasons(status, shown))


def test_a_source_without_any_response_is_unreachable() -> None:
    shown = mirror(lag(5, None, responded_ms=None, caught_up_ms=None))

    (reason,) = link_reasons(link(shown))
    assert (reason.kind, reason.verdict) == ("link-unreachable", "wrong")
    assert "to orders-0 since its leader began to fetch" in reason.what


def test_a_paused_link_is_not_unreachable() -> None:
    shown = mirror(lag(5, None, responded_ms=None, caught_up_ms=None))
    status = link(shown, is_paused=True)

    assert kinds(link_reasons(status)) == [("link-paused", "note")]
    assert kinds(mirror_reasons(status, shown)) == [
        ("mirror-of-link", "note"),
        ("link-paused", "note"),
    ]


def test_a_reversed_link_is_well() -> None:
    status = link(mirror(state=MirrorState.PROMOTED), is_paused=True, is_reversed=True)

    assert status.state == "reversed"
    assert kinds(link_reasons(status)) == [("link-reversed", "ok")]


def test_an_invalid_link_names_its_problem() -> None:
    (reason,) = link_reasons(link(problem="group.sync.ms: 'often'"))

    assert (reason.kind, reason.verdict) == ("link-invalid", "wrong")
    assert "'often'" in reason.what


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (MirrorState.STOPPED, ("mirror-stopped", "wrong")),
        (MirrorState.PAUSED, ("mirror-paused", "note")),
        (MirrorState.PROMOTING, ("mirror-promoting", "note")),
        (MirrorState.PROMOTED, ("mirror-promoted", "ok")),
        (MirrorState.CONFLICT, ("mirror-conflict", "note")),
        (MirrorState.ACTIVE, ("mirror-missing", "note")),
    ],
)
def test_each_state_of_a_mirror_has_its_reason(
    state: MirrorState, expected: tuple[str, str]
) -> None:
    shown = mirror(state=state, reason="a text of the broker")

    assert kinds(mirror_reasons(link(shown), shown)) == [expected]


def test_groups_whose_copies_are_old_are_a_problem_unless_they_have_members() -> None:
    old = NOW_MS - 5 * MINUTE_MS
    groups = (GroupCopy("billing", "Empty", old), GroupCopy("local", "Stable", old))

    (reason,) = link_reasons(link(mirror(lag(5, 5)), groups=groups))
    assert (reason.kind, reason.verdict) == ("groups-not-copied", "wrong")
    assert "1 group, for example billing for 5 min" in reason.what


def test_a_link_without_mirrors_says_so() -> None:
    assert kinds(link_reasons(link())) == [("link-empty", "note")]
