"""Who leads a partition, and the record that says so (Kafka's PartitionChangeBuilder, KIP-966).

A leader comes from the ISR or the eligible leader replicas, in the order of the replicas; then,
uncleanly, it is the last known leader or, where the topic allows it, any live replica. A
reassignment is over as soon as all replicas that it adds are in the ISR (KIP-455).

While a partition has no leader nothing is committed. So every replica that was in sync or eligible
when the last leader went keeps all that is committed, and is kept as eligible. When one of them
loses its eligibility by an unclean shutdown, it stays known behind the last known leader: it may
lead, uncleanly, if the last known leader's data is gone. A replica that begins anew in an empty
directory is in none of these lists.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.metadata_version import (
    bumps_leader_epoch_on_isr_shrink,
    has_directories,
    partition_change_record_version,
)
from barnabas.metadata.partition_registration import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionRegistration,
)
from barnabas.protocol.records.partition_change_record import PartitionChangeRecord

if TYPE_CHECKING:
    from barnabas.controller.candidates import Candidates

_UNCHANGED_RECOVERY = -1


class Election(Enum):
    """How far an election may go to find a leader."""

    # The present leader if it may go on, else who is in sync or eligible.
    ONLINE = "online"
    # The same, but the preferred replica before the present leader.
    PREFERRED = "preferred"
    # Where nobody is in sync or eligible: any live replica.
    UNCLEAN = "unclean"


class ElectionRules(msgspec.Struct, frozen=True):
    """What an election goes by; one for all partitions of a topic."""

    metadata_version: int
    # Whether eligible leader replicas are kept.
    elr_enabled: bool
    # min.insync.replicas of the topic, at most as many as it has replicas.
    min_isr: int
    candidates: Candidates
    election: Election = Election.ONLINE
    # Replicas that may have lost data: no longer eligible, and not to be elected.
    unclean_shutdown: frozenset[int] = frozenset()
    # Replicas that have begun anew in an empty directory: they have nothing, and are not elected.
    emptied: frozenset[int] = frozenset()


class Assignment(msgspec.Struct, frozen=True):
    """Where a partition is, and where it is on the way to (KIP-455)."""

    # All replicas, those that come and go included; the preferred leader first.
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionRegistration) -> Assignment:
        """The assignment that a partition has."""
        return cls(partition.replicas, partition.adding_replicas, partition.removing_replicas)

    def after(self, isr: tuple[int, ...]) -> tuple[Assignment, tuple[int, ...]]:
        """This assignment and the ISR, or what they become if the reassignment is over."""
        if not (self.adding or self.removing) or not set(self.adding) <= set(isr):
            return self, isr
        kept = tuple(replica for replica in self.replicas if replica not in self.removing)
        in_sync = tuple(replica for replica in isr if replica not in self.removing)
        return (Assignment(kept), in_sync) if in_sync else (self, isr)


class _Outcome(msgspec.Struct, frozen=True):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    unclean: bool = False


def changed_partition(
    partition: int,
    topic_id: bytes,
    before: PartitionRegistration,
    target_isr: tuple[int, ...],
    rules: ElectionRules,
    target: Assignment | None = None,
) -> tuple[PartitionChangeRecord, int] | None:
    """The record that gives the partition `target_isr` and, where needed, another leader.

    Args:
        target: the assignment to have; None for the present one.

    Returns:
        None if nothing changes.
    """
    assignment, target_isr = (target or Assignment.of(before)).after(target_isr)
    complete = _complete(before, rules, assignment.replicas)
    eligible = (
        tuple(each for each in complete if each not in target_isr) if rules.elr_enabled else ()
    )
    last_known = _last_known(before, rules, assignment.replicas)
    outcome = _elect(before, target_isr, eligible, last_known, rules, assignment.replicas)
    isr = outcome.isr
    if outcome.leader == NO_LEADER and not rules.elr_enabled:
        isr = _isr_without_elr(before, isr, rules, assignment.replicas)
    record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id)
    if isr != before.isr:
        record.isr = list(isr)
    if outcome.leader != before.leader:
        record.leader = outcome.leader
    if outcome.unclean and before.leader_recovery_state != RECOVERING:
        record.leader_recovery_state = RECOVERING
    if outcome.elr != before.elr:
        record.eligible_leader_replicas = list(outcome.elr)
    if rules.elr_enabled:
        _note_last_known(record, before, outcome, last_known)
    _note_assignment(record, before, assignment, rules)
    if (
        record.leader == NO_LEADER_CHANGE
        and bumps_leader_epoch_on_isr_shrink(rules.metadata_version)
        and not set(before.isr) <= set(isr)
    ):
        record.leader = before.leader
    if _says_nothing(record):
        return None
    return record, partition_change_record_version(rules.metadata_version)


def _elect(
    before: PartitionRegistration,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    last_known: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> _Outcome:
    leader = _clean_leader(before, (*isr, *eligible), rules, replicas)
    if leader in isr:
        return _Outcome(leader, isr, _elr_beside(isr, eligible, rules, replicas))
    if leader != NO_LEADER:
        # The others in the ISR have all that is committed so far, but may miss what the leader has.
        others = tuple(sorted({*isr, *eligible} - {leader}))
        return _Outcome(leader, (leader,), _elr_beside((leader,), others, rules, replicas))
    candidates = rules.candidates
    may_lose = [*last_known] if rules.elr_enabled and not isr and not eligible else []
    if rules.election is Election.UNCLEAN and not any(map(candidates.is_doubtful, isr)):
        may_lose += [*last_known, *replicas]
    for replica in may_lose:
        is_excluded = replica in rules.unclean_shutdown or replica in rules.emptied
        if replica in replicas and not is_excluded and candidates.may_lead(before, replica):
            return _Outcome(replica, (replica,), (), unclean=True)
    return _Outcome(NO_LEADER, isr, eligible)


def _clean_leader(
    before: PartitionRegistration,
    eligible: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> int:
    """Who leads without loss, NO_LEADER if nobody can."""
    order: tuple[int, ...] = (before.leader, *replicas)
    if rules.election is Election.PREFERRED:
        order = (*replicas[:1], before.leader, *replicas[1:])
    for replica in order:
        if (
            replica in eligible
            and replica not in rules.unclean_shutdown
            and rules.candidates.may_lead(before, replica)
        ):
            return replica
    return NO_LEADER


def _complete(
    before: PartitionRegistration, rules: ElectionRules, replicas: tuple[int, ...]
) -> tuple[int, ...]:
    """Replicas that have all that is committed up to this change, and have it safely."""
    # Kafka keeps those too that are no replicas any more; nobody could ever use them.
    return tuple(
        replica
        for replica in sorted(_had_all(before, rules, replicas).intersection(replicas))
        if replica not in rules.unclean_shutdown and replica not in rules.emptied
    )


def _had_all(
    before: PartitionRegistration, rules: ElectionRules, replicas: tuple[int, ...]
) -> set[int]:
    """The ISR and the eligible replicas before this change.

    Without the eligible ones if a leader could commit records that they do not have: its ISR is
    large enough by itself, for instance since min.insync.replicas is smaller now.
    """
    has_leader = before.leader != NO_LEADER
    if has_leader and _is_large_enough(before.isr, rules, replicas):
        return {*before.isr}
    return {*before.isr, *before.elr}


def _isr_without_elr(
    before: PartitionRegistration,
    isr: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> tuple[int, ...]:
    """The ISR of a partition without a leader: without ELR only it names complete replicas."""
    kept = [each for each in before.isr if each in replicas and each not in rules.emptied]
    return (*kept, *(each for each in isr if each not in kept))


def _elr_beside(
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> tuple[int, ...]:
    """Replicas that stay eligible under a leader: while the ISR is too small to commit anything."""
    return () if _is_large_enough(isr, rules, replicas) else eligible


def _is_large_enough(isr: tuple[int, ...], rules: ElectionRules, replicas: tuple[int, ...]) -> bool:
    return len(isr) >= min(rules.min_isr, len(replicas))


def _last_known(
    before: PartitionRegistration, rules: ElectionRules, replicas: tuple[int, ...]
) -> tuple[int, ...]:
    """The last known leader first, then those that lost their eligibility without a leader.

    What is remembered if the partition has no leader after this change.
    """
    known = before.last_known_elr if before.leader == NO_LEADER else (before.leader,)
    lost = _had_all(before, rules, replicas).intersection(rules.unclean_shutdown)
    known = (*known, *(each for each in sorted(lost) if each not in known))
    return tuple(each for each in known if each not in rules.emptied)


def _note_last_known(
    record: PartitionChangeRecord,
    before: PartitionRegistration,
    outcome: _Outcome,
    last_known: tuple[int, ...],
) -> None:
    """Remember the replicas that may lead uncleanly; forget them once there is a leader."""
    wanted = last_known if outcome.leader == NO_LEADER else ()
    if wanted != before.last_known_elr:
        record.last_known_elr = list(wanted)


def _note_assignment(
    record: PartitionChangeRecord,
    before: PartitionRegistration,
    assignment: Assignment,
    rules: ElectionRules,
) -> None:
    """Put what changes of the assignment into the record."""
    replicas = assignment.replicas
    if replicas != before.replicas:
        record.replicas = list(replicas)
        if has_directories(rules.metadata_version):
            record.directories = [
                before.directory_of(replica)
                if replica in before.replicas
                else rules.candidates.directory_on(replica)
                for replica in replicas
            ]
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(replicas):
            # Who is no replica any more learns it by the leader's new epoch.
            record.leader = before.leader
    if assignment.adding != before.adding_replicas:
        record.adding_replicas = list(assignment.adding)
    if assignment.removing != before.removing_replicas:
        record.removing_replicas = list(assignment.removing)


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == _UNCHANGED_RECOVERY
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
    )
