"""Checks the guarantees of share groups (KIP-932) in a history of its members.

delivered again     acquired for a member after an acknowledgement that ends it was accepted
lost                the group has passed the record, which is neither acknowledged nor given up by
                    its delivery count
locked for ever     the group does not process the record long after the last fault
locked twice        acquired for a member while the lock of another one lasts
former owner        an acknowledgement is accepted from a member while another one has the lock
late                an acknowledgement is accepted after the lock has ended
count went back     a later delivery has no higher delivery count
count skipped       the delivery count rises by more than one, and no acquisition can be lost
over the limit      a delivery count above the limit of deliveries
phantom             a delivered record that the log does not have

When a leader changes, locks may end early, and delivery counts may return to the stored values.
During faults, the rules about locks and counts are therefore not applied. The rules about accepted
acknowledgements always apply.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from barnabas.client.share.acknowledgements import AcknowledgeType
from chaos.groups.share_history import Answer
from chaos.verdict import Verdict

if TYPE_CHECKING:
    from chaos.groups.share_history import Delivery, ShareHistory

# Maximum difference between timers and the clock of the history (s).
SLACK_S = 0.1

KINDS = (
    "delivered again",
    "lost",
    "locked for ever",
    "locked twice",
    "former owner",
    "late",
    "count went back",
    "count skipped",
    "over the limit",
    "phantom",
)


def check_share_group(history: ShareHistory) -> Verdict:
    """Return all violations of a history."""
    verdict = Verdict(KINDS)
    by_record: dict[tuple[int, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_record[delivery.partition, delivery.offset].append(delivery)
    for deliveries in by_record.values():
        deliveries.sort(key=lambda each: each.at)
        for each in deliveries:
            _check_alone(history, each, verdict)
        _check_accepted(deliveries, verdict)
        for earlier, later in pairwise(deliveries):
            _check_locks(history, earlier, later, verdict)
            _check_counts(history, earlier, later, verdict)
        _check_first_count(history, deliveries[0], verdict)
    for partition, log in history.logs.items():
        lag = history.lags.get(partition, 0)
        is_told = False
        for offset in log:
            found = by_record.get((partition, offset), [])
            is_told = _check_end(history, (partition, offset), found, verdict) or is_told
        if lag and not is_told:
            verdict.add("locked for ever", f"partition {partition}: lag {lag}")
    return verdict


def _check_alone(history: ShareHistory, delivery: Delivery, verdict: Verdict) -> None:
    log = history.logs.get(delivery.partition, {})
    if log.get(delivery.offset) != delivery.code:
        verdict.add("phantom", f"partition {delivery.partition}: {delivery}")
    if delivery.count > history.delivery_limit:
        verdict.add("over the limit", f"partition {delivery.partition}: {delivery}")
    ends = lock_end(history, delivery, delivery.at)
    for ack in delivery.acknowledgements:
        is_late = ack.asked > ends + SLACK_S and not history.is_disturbed(delivery.after, ack.ended)
        if ack.answer is Answer.ACCEPTED and is_late and not _may_be_processed(history, delivery):
            verdict.add("late", f"partition {delivery.partition}: {delivery}")


def _may_be_processed(history: ShareHistory, delivery: Delivery) -> bool:
    """Return whether the record may be below the start offset, where all requests succeed."""
    others = (
        each
        for each in history.deliveries
        if (each.partition, each.offset) == (delivery.partition, delivery.offset)
    )
    return any(
        ack.is_final and ack.answer is not Answer.REFUSED
        for each in others
        if each is not delivery
        for ack in each.acknowledgements
    )


def lock_end(history: ShareHistory, delivery: Delivery, begins: float) -> float:
    """Return the timeout of a lock that begins at a time. Accepted renewals extend it."""
    renewed = [
        ack.asked if begins == delivery.after else ack.ended
        for ack in delivery.acknowledgements
        if ack.kind is AcknowledgeType.RENEW
        and (ack.answer is Answer.ACCEPTED or begins != delivery.after)
    ]
    return max([begins, *renewed]) + history.lock_s


def _check_accepted(deliveries: list[Delivery], verdict: Verdict) -> None:
    """Check that a record is not delivered after an accepted final acknowledgement."""
    for earlier in deliveries:
        for ack in earlier.acknowledgements:
            if not ack.is_final or ack.answer is not Answer.ACCEPTED:
                continue
            again = [each for each in deliveries if each.after >= ack.ended]
            if again:
                text = f"partition {earlier.partition}: {earlier}; {again[0]}"
                verdict.add("delivered again", text)


def _check_locks(
    history: ShareHistory, earlier: Delivery, later: Delivery, verdict: Verdict
) -> None:
    text = f"partition {earlier.partition}: {earlier}; {later}"
    if not history.is_disturbed(earlier.after, later.at):
        # A record that was acquired after the other one was given up, or after its lock.
        ends = min(earlier.given_up, lock_end(history, earlier, earlier.after))
        if later.at < ends - SLACK_S:
            verdict.add("locked twice", text)
    if earlier.member == later.member or later.after < earlier.at:
        return
    for ack in earlier.acknowledgements:
        # While the later member has the record, the start offset cannot pass it.
        has_it = later.at < ack.asked and ack.ended < later.given_up
        holds = later.after + history.lock_s > ack.ended + SLACK_S
        is_calm = not history.is_disturbed(later.after, ack.ended)
        if ack.answer is Answer.ACCEPTED and has_it and holds and is_calm:
            verdict.add("former owner", text)


def _check_counts(
    history: ShareHistory, earlier: Delivery, later: Delivery, verdict: Verdict
) -> None:
    text = f"partition {earlier.partition}: {earlier}; {later}"
    is_stored = any(
        ack.kind is AcknowledgeType.RELEASE
        and ack.answer is Answer.ACCEPTED
        and ack.ended <= later.after
        for ack in earlier.acknowledgements
    )
    # A fetch may wait for records since before the earlier delivery.
    is_ordered = later.after >= earlier.at or later.at >= earlier.given_up
    is_calm = is_ordered and not history.is_disturbed(earlier.after, later.at)
    if later.count <= earlier.count and (is_stored or is_calm):
        verdict.add("count went back", text)
    elif later.count > earlier.count + 1 and not history.has_drops(earlier.after, later.at):
        verdict.add("count skipped", text)


def _check_first_count(history: ShareHistory, first: Delivery, verdict: Verdict) -> None:
    if first.count > 1 and not history.has_drops(0, first.at):
        verdict.add("count skipped", f"partition {first.partition}: {first} is the first delivery")


def _check_end(
    history: ShareHistory, place: tuple[int, int], found: list[Delivery], verdict: Verdict
) -> bool:
    """Check that a record was processed. Return whether it was not."""
    partition, offset = place
    if any(
        ack.is_final and ack.answer is not Answer.REFUSED
        for each in found
        for ack in each.acknowledgements
    ):
        return False
    text = f"partition {partition}: offset {offset}: {'; '.join(map(str, found)) or 'never seen'}"
    highest = max((each.count for each in found), default=0)
    needed = history.delivery_limit
    if history.disturbances or history.drops:
        # The last acquisitions may be lost, but not most of them.
        needed = max(1, needed // 2)
    if history.lags.get(partition, 0) and offset >= history.start_offsets.get(partition, 0):
        # One of these records blocks the group.
        if highest < needed:
            verdict.add("locked for ever", text)
        return highest < needed
    if highest < needed:
        verdict.add("lost", text)
    return highest < needed
