"""Who leads a partition, and the record that says so (Kafka's PartitionChangeBuilder, KIP-966).

A leader comes from the ISR, the preferred replica first; then from the eligible leader replicas;
then, uncleanly, the last known leader or, where the topic allows it, any live replica. A
reassignment is over as soon as all replicas that it adds are in the ISR (KIP-455).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.metadata_version import (
    has_directories,
    partition_change_record_version,
)
from barnabas.metadata.partition_registration import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionRegistration,
)
from barnabas.protocol.records.partition_change_record import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

_UNCHANGED_RECOVERY = -1


class ElectionRules(msgspec.Struct, frozen=True):
    """What an election goes by."""

    metadata_version: int
    # Whether eligible leader replicas are kept.
    elr_enabled: bool
    # min.insync.replicas of the topic, at most its replication factor.
    min_isr: int
    # Live, not fenced, not shutting down.
    is_acceptable: Callable[[int], bool]
    unclean_election: bool = False
    # Elect the preferred replica if it is in the ISR, though another leads.
    prefer_first: bool = False
    # Replicas that may have lost data: no longer eligible.
    unclean_shutdown: frozenset[int] = frozenset()
    # The directory that a broker keeps a new replica in, as far as that is known.
    directory_on: Callable[[int], bytes] = lambda _: DIRECTORY_UNASSIGNED


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
    if not target_isr and not rules.elr_enabled:
        # Without ELR the last member stays in the ISR: it alone is known to have everything.
        target_isr = before.isr
    elr = _target_elr(before, target_isr, rules)
    outcome = _elect(before, target_isr, elr, rules, assignment.replicas)
    if outcome.isr != target_isr:
        elr = _target_elr(before, outcome.isr, rules)
    last_known = _last_known_elr(before, outcome, rules)
    record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id)
    if outcome.isr != before.isr:
        record.isr = list(outcome.isr)
    if outcome.leader != before.leader:
        record.leader = outcome.leader
    recovery = _recovery(before, outcome)
    if recovery != before.leader_recovery_state:
        record.leader_recovery_state = recovery
    if elr != before.elr:
        record.eligible_leader_replicas = list(elr)
    if last_known != before.last_known_elr:
        record.last_known_elr = list(last_known)
    _note_assignment(record, before, assignment, rules)
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
    preferred = replicas[0] if replicas else NO_LEADER
    if rules.prefer_first and preferred in isr and rules.is_acceptable(preferred):
        return _Outcome(preferred, isr)
    if before.leader in isr and rules.is_acceptable(before.leader):
        return _Outcome(before.leader, isr)
    for replica in replicas:
        if replica in isr and rules.is_acceptable(replica):
            return _Outcome(replica, isr)
    if not any(rules.is_acceptable(replica) for replica in isr):
        for replica in replicas:
            if replica in elr and rules.is_acceptable(replica):
                return _Outcome(replica, (replica,))
        last = before.last_known_elr
        if not isr and not elr and len(last) == 1 and rules.is_acceptable(last[0]):
            return _Outcome(last[0], last, unclean=True)
        if rules.unclean_election:
            for replica in replicas:
                if rules.is_acceptable(replica):
                    return _Outcome(replica, (replica,), unclean=True)
    return _Outcome(NO_LEADER, isr)


def _target_elr(
    before: PartitionRegistration, isr: tuple[int, ...], rules: ElectionRules
) -> tuple[int, ...]:
    """Replicas out of the ISR that have all that is committed: kept while it is too small."""
    if not rules.elr_enabled or len(isr) >= rules.min_isr:
        return ()
    eligible = (*before.elr, *(replica for replica in before.isr if replica not in before.elr))
    return tuple(
        replica
        for replica in eligible
        if replica not in isr and replica not in rules.unclean_shutdown
    )


def _last_known_elr(
    before: PartitionRegistration, outcome: _Outcome, rules: ElectionRules
) -> tuple[int, ...]:
    if not rules.elr_enabled or outcome.leader != NO_LEADER:
        return ()
    if outcome.isr or before.last_known_elr or before.leader == NO_LEADER:
        return before.last_known_elr
    return (before.leader,)


def _recovery(before: PartitionRegistration, outcome: _Outcome) -> int:
    if outcome.unclean:
        return RECOVERING
    if outcome.leader in (before.leader, NO_LEADER):
        return before.leader_recovery_state
    return RECOVERED


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
                else rules.directory_on(replica)
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
