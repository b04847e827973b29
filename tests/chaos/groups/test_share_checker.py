"""The checker of share groups finds each kind of fault in a constructed history, and no other."""

from __future__ import annotations

import pytest

from barnabas.client.share.acknowledgements import AcknowledgeType
from chaos.groups.share_checker import KINDS, check_share_group
from chaos.groups.share_history import Acknowledgement, Answer, Delivery, ShareHistory

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW
LOCK_S, LIMIT = 1.0, 4


def history(*deliveries: Delivery, start: int = 1, lag: int = 0) -> ShareHistory:
    """One partition with one record, at offset 0."""
    return ShareHistory(
        LOCK_S, LIMIT, list(deliveries), logs={0: {0: 7}}, start_offsets={0: start}, lags={0: lag}
    )


def got(
    member: str, at: float, *acks: Acknowledgement, count: int = 1, ended: float = float("inf")
) -> Delivery:
    delivery = Delivery(member, 0, 0, 7, count, at - 0.01, at, list(acks))
    delivery.ended = ended
    return delivery


def ack(kind: AcknowledgeType, asked: float, answer: Answer = Answer.ACCEPTED) -> Acknowledgement:
    return Acknowledgement(kind, asked, asked + 0.01, answer)


def kinds(found: ShareHistory) -> set[str]:
    return set(check_share_group(found).counts)


def accepted(member: str = "b", at: float = 5.0, count: int = 2) -> Delivery:
    return got(member, at, ack(ACCEPT, at + 0.1), count=count)


CORRECT = {
    "a record that is accepted": history(accepted("a", 1.0, 1)),
    "a record that is rejected": history(got("a", 1.0, ack(REJECT, 1.1))),
    "a released record that is delivered again": history(
        got("a", 1.0, ack(RELEASE, 1.1)), accepted()
    ),
    "a lock that has timed out": history(
        got("a", 1.0, ack(ACCEPT, 2.2, Answer.REFUSED)), accepted("b", 2.1)
    ),
    "an acknowledgement without a response": history(
        got("a", 1.0, ack(ACCEPT, 1.1, Answer.UNKNOWN))
    ),
    "an acknowledgement without a response that had no effect": history(
        got("a", 1.0, ack(ACCEPT, 1.1, Answer.UNKNOWN)), accepted()
    ),
    "a dead member's record": history(got("a", 1.0, ended=1.1), accepted("b", 1.2)),
    "a renewed lock": history(
        got("a", 1.0, ack(RENEW, 1.8), ack(ACCEPT, 2.7)),
    ),
    "a late acknowledgement of a record that is processed": history(
        got("a", 1.0, ack(ACCEPT, 5.0)), accepted("b", 2.1)
    ),
    "a record that is given up": history(
        *(got("a", float(n), ack(RELEASE, n + 0.1), count=n) for n in range(1, LIMIT + 1))
    ),
}
FAULTS = {
    "delivered again": history(accepted("a", 1.0, 1), accepted()),
    "lost": history(got("a", 1.0, ack(RELEASE, 1.1))),
    "locked for ever": history(got("a", 1.0), start=0, lag=1),
    "locked twice": history(got("a", 1.0), accepted("b", 1.5)),
    "former owner": history(got("a", 1.0, ack(ACCEPT, 2.25)), accepted("b", 2.2)),
    "late": history(got("a", 1.0, ack(RELEASE, 3.0)), got("a", 4.0, count=2), start=1),
    "count went back": history(got("a", 1.0, ack(RELEASE, 1.1)), accepted(count=1)),
    "count skipped": history(got("a", 1.0, ack(RELEASE, 1.1)), accepted(count=3)),
    "over the limit": history(accepted("a", 1.0, LIMIT + 1)),
    "phantom": ShareHistory(LOCK_S, LIMIT, [accepted("a", 1.0, 1)], logs={0: {}}),
}
# Kinds that a fault implies.
IMPLIED = {
    "late": {"late", "lost"},
    "over the limit": {"over the limit", "count skipped"},
}


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_is_found_in_a_correct_history(name: str) -> None:
    verdict = check_share_group(CORRECT[name])
    assert verdict.is_clean, verdict


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_is_found(kind: str) -> None:
    assert kinds(FAULTS[kind]) == IMPLIED.get(kind, {kind})


def test_a_record_that_was_never_seen_is_lost() -> None:
    assert kinds(history()) == {"lost"}


def test_a_renewed_lock_is_held() -> None:
    found = history(got("a", 1.0, ack(RENEW, 1.8)), accepted("b", 2.5))
    assert kinds(found) == {"locked twice"}


def test_locks_and_counts_may_be_lost_when_the_cluster_is_disturbed() -> None:
    found = history(got("a", 1.0), accepted("b", 1.5, count=1))
    found.disturbances.append((1.2, 1.4))
    assert kinds(found) == set()


def test_what_was_accepted_holds_also_when_the_cluster_is_disturbed() -> None:
    found = history(accepted("a", 1.0, 1), accepted())
    found.disturbances.append((1.0, 9.0))
    assert kinds(found) == {"delivered again"}


def test_the_count_of_a_released_record_holds_also_when_the_cluster_is_disturbed() -> None:
    found = history(got("a", 1.0, ack(RELEASE, 1.1), count=2), accepted(count=1))
    found.disturbances.append((0.5, 9.0))
    assert kinds(found) == {"count went back"}


def test_a_count_may_rise_by_deliveries_that_a_dead_member_got() -> None:
    found = history(got("a", 1.0, ack(RELEASE, 1.1)), accepted(count=3))
    found.drops.append((2.0, 2.1))
    assert kinds(found) == set()


def test_an_accepted_record_that_the_group_has_not_processed_is_found() -> None:
    assert kinds(history(accepted("a", 1.0, 1), start=0, lag=1)) == {"locked for ever"}


def test_a_start_offset_may_be_that_of_the_last_write() -> None:
    assert kinds(history(accepted("a", 1.0, 1), start=0)) == set()
