"""Who leads a partition, and the record that says so (Kafka's PartitionChangeBuilder, KIP-966).

A leader comes from the ISR or the eligible leader replicas, in the order of the replicas; then,
uncleanly, it is the last known leader or, where the topic allows it, any live replica. A
reassignment is over as soon as all replicas that it adds are in the ISR (KIP-455).
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
    elr = _target_elr(before, target_isr, rules, assignment.replicas)
    outcome = _elect(before, target_isr, elr, rules, assignment.replicas)
    isr = outcome.isr
    if not isr and not rules.elr_enabled:
        # Without ELR the last member stays in the ISR: it alone is known to have everything.
        isr = before.isr
    record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id)
    if isr != before.isr:
        record.isr = list(isr)
    if outcome.leader != before.leader:
        record.leader = outcome.leader
    if outcome.unclean and before.leader_recovery_state != RECOVERING:
        record.leader_recovery_state = RECOVERING
    if outcome.elr != before.elr:
        record.eligible_leader_replicas = list(outcome.elr)
    _note_last_known_leader(record, before, rules)
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
    elr: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> _Outcome:
    leader = _clean_leader(before, (*isr, *elr), rules, replicas)
    if leader in isr:
        return _Outcome(leader, isr, elr)
    if leader != NO_LEADER:
        # It had all that was committed; of the others in the ISR that cannot be said any more.
        return _Outcome(leader, (leader,), tuple(each for each in elr if each != leader))
    may_lead = rules.candidates.may_lead
    last = before.last_known_elr
    if (
        rules.elr_enabled
        and not isr
        and not elr
        and len(last) == 1
        and last[0] not in rules.unclean_shutdown
        and may_lead(before, last[0])
    ):
        return _Outcome(last[0], last, (), unclean=True)
    if rules.election is Election.UNCLEAN:
        for replica in replicas:
            if replica not in rules.unclean_shutdown and may_lead(before, replica):
                return _Outcome(replica, (replica,), (), unclean=True)
    return _Outcome(NO_LEADER, isr, elr)


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


def _target_elr(
    before: PartitionRegistration,
    isr: tuple[int, ...],
    rules: ElectionRules,
    replicas: tuple[int, ...],
) -> tuple[int, ...]:
    """Replicas out of the ISR that have all that is committed: kept while it is too small."""
    if not rules.elr_enabled or len(isr) >= min(rules.min_isr, len(replicas)):
        return ()
    # Kafka keeps those too that are no replicas any more; nobody could ever use them.
    return tuple(
        replica
        for replica in sorted({*before.elr, *before.isr}.intersection(replicas))
        if replica not in isr and replica not in rules.unclean_shutdown
    )


def _note_last_known_leader(
    record: PartitionChangeRecord, before: PartitionRegistration, rules: ElectionRules
) -> None:
    """Remember who led last when nobody can lead any more, and forget it when somebody does."""
    if not rules.elr_enabled:
        return
    last = before.last_known_elr
    if record.leader == NO_LEADER:
        if last != (before.leader,):
            record.last_known_elr = [before.leader]
        return
    leads = before.leader if record.leader == NO_LEADER_CHANGE else record.leader
    if last and leads != NO_LEADER:
        record.last_known_elr = []


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
