"""Leader election of a partition, and its change record (PartitionChangeBuilder, KIP-966).

The leader is taken from the ISR or the eligible leader replicas (ELR), in the order of the
replicas. An unclean election takes the last known leader or, if the topic allows it, any live
replica. A reassignment completes as soon as all added replicas are in the ISR (KIP-455). Candidates
are the replicas that may lead a partition now (Kafka's LeaderAcceptor; directories: KIP-858).

While a partition has no leader, no record is committed. Every replica that was in the ISR or ELR
when the last leader failed therefore keeps all committed records, and stays in the ELR. A replica
that leaves the ELR after an unclean shutdown is listed after the last known leader. It may lead,
uncleanly, if the data of the last known leader is lost. A replica that starts empty in a new
directory is in none of these lists.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from barnabas.controller.partitions.new_partitions import directory_on, is_live
from barnabas.metadata.metadata_version import (
    bumps_leader_epoch_on_isr_shrink,
    has_directories,
    partition_change_record_version,
)
from barnabas.metadata.partition_registration import (
    DIRECTORY_MIGRATING,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionRegistration,
)
from barnabas.protocol.records.topics import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from barnabas.metadata.broker_registration import BrokerRegistration


NO_BROKER = -1
_NONE: frozenset[int] = frozenset()


class Candidates:
    """The live brokers at one moment. One instance serves all partitions of an event."""

    __slots__ = ("_brokers", "_live", "_suspected")

    def __init__(
        self,
        brokers: Mapping[int, BrokerRegistration],
        *,
        leaving: int = NO_BROKER,
        returning: int = NO_BROKER,
        suspected: AbstractSet[int] = _NONE,
    ) -> None:
        """Determine the live brokers.

        Args:
            brokers: the registrations of the image, by broker id.
            leaving: a broker that is being fenced, which counts as fenced already.
            returning: a broker that is being unfenced, which counts as live already.
            suspected: brokers that may be dead; none of them is elected.
        """
        self._brokers = brokers
        live = {broker.id for broker in brokers.values() if is_live(broker)}
        live.discard(leaving)
        self._suspected = live.intersection(suspected) - {returning}
        live -= self._suspected
        if returning in brokers:
            live.add(returning)
        self._live = live

    def may_lead(self, partition: PartitionRegistration, replica: int) -> bool:
        """Return whether `replica` is a live replica of the partition in an online directory."""
        if replica not in self._live or replica not in partition.replicas:
            return False
        return self._brokers[replica].has_online(partition.directory_of(replica))

    def is_suspected(self, replica: int) -> bool:
        """Return whether the broker is excluded only because it may be dead."""
        return replica in self._suspected

    def directory_on(self, replica: int) -> bytes:
        """Return the directory of a new replica on a broker, as far as it is known."""
        broker = self._brokers.get(replica)
        return DIRECTORY_MIGRATING if broker is None else directory_on(broker)


_UNCHANGED_RECOVERY = -1


class Election(Enum):
    """The replicas among which an election may choose."""

    # The current leader if it may continue, otherwise a replica in the ISR or ELR.
    ONLINE = "online"
    # As ONLINE, but the preferred replica comes before the current leader.
    PREFERRED = "preferred"
    # As ONLINE; if ISR and ELR have no possible leader, any live replica.
    UNCLEAN = "unclean"


class ElectionRules(msgspec.Struct, frozen=True):
    """The conditions of an election, the same for all partitions of a topic."""

    metadata_version: int
    # Whether eligible leader replicas are enabled.
    elr_enabled: bool
    # min.insync.replicas of the topic, limited to its number of replicas.
    min_isr: int
    candidates: Candidates
    election: Election = Election.ONLINE
    # Replicas that may have lost data. They leave the ELR and are not elected.
    unclean_shutdown: frozenset[int] = frozenset()
    # Replicas that start empty in a new directory. They have no data and are not elected.
    emptied: frozenset[int] = frozenset()


class Assignment(msgspec.Struct, frozen=True):
    """The replicas of a partition, and the pending reassignment (KIP-455)."""

    # All replicas, including added and removed ones; the preferred leader comes first.
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionRegistration) -> Assignment:
        """Return the current assignment of a partition."""
        return cls(partition.replicas, partition.adding_replicas, partition.removing_replicas)

    def after(self, isr: tuple[int, ...]) -> tuple[Assignment, tuple[int, ...]]:
        """Return the assignment and ISR, completed if all added replicas are in the ISR."""
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
    """Return the record that changes the ISR to `target_isr`, and elects a leader if necessary.

    Args:
        partition: the partition index.
        topic_id: the id of the topic.
        before: the current state of the partition.
        target_isr: the proposed ISR.
        rules: the conditions of the election.
        target: the new assignment; None for the current one.

    Returns:
        The record and its version; None if nothing changes.
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
    if _has_no_changes(record):
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
        return _Outcome(leader, isr, _elr_with_leader(isr, eligible, rules, replicas))
    if leader != NO_LEADER:
        # Other ISR members have all committed records, but may miss later records of the new
        # leader.
        others = tuple(sorted({*isr, *eligible} - {leader}))
        return _Outcome(leader, (leader,), _elr_with_leader((leader,), others, rules, replicas))
    candidates = rules.candidates
    may_lose = [*last_known] if rules.elr_enabled and not isr and not eligible else []
    if rules.election is Election.UNCLEAN and not any(map(candidates.is_suspected, isr)):
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
    """Return the leader that loses no committed record; NO_LEADER if there is none."""
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
    """Return the replicas that safely have all records committed before this change."""
    # Kafka also keeps replicas that are no longer assigned; those could never be elected.
    return tuple(
        replica
        for replica in sorted(
            _replicas_with_all_committed(before, rules, replicas).intersection(replicas)
        )
        if replica not in rules.unclean_shutdown and replica not in rules.emptied
    )


def _replicas_with_all_committed(
    before: PartitionRegistration, rules: ElectionRules, replicas: tuple[int, ...]
) -> set[int]:
    """Return the members of ISR and ELR before this change that have all committed records.

    If the ISR alone is large enough to commit, the ELR is excluded, because its replicas may miss
    committed records. This happens, for example, after min.insync.replicas is lowered.
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
    """Return the ISR of a partition without a leader when ELR is disabled.

    Only the ISR then tells which replicas have all committed records.
    """
    kept = [each for each in before.isr if each in replicas and each not in rules.emptied]
    return (*kept, *(each for each in isr if each not in kept))


def _elr_with_leader(
    isr: tuple[int, ...], eligible: tuple[int, ...], rules: ElectionRules, replicas: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the ELR of a partition with a leader; empty if the ISR is large enough to commit."""
    return () if _is_large_enough(isr, rules, replicas) else eligible


def _is_large_enough(isr: tuple[int, ...], rules: ElectionRules, replicas: tuple[int, ...]) -> bool:
    return len(isr) >= min(rules.min_isr, len(replicas))


def _last_known(
    before: PartitionRegistration, rules: ElectionRules, replicas: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the last known leader, then the replicas that lost their eligibility after it.

    The record stores this list if the partition has no leader after the change.
    """
    known = before.last_known_elr if before.leader == NO_LEADER else (before.leader,)
    lost = _replicas_with_all_committed(before, rules, replicas).intersection(
        rules.unclean_shutdown
    )
    known = (*known, *(each for each in sorted(lost) if each not in known))
    return tuple(each for each in known if each not in rules.emptied)


def _note_last_known(
    record: PartitionChangeRecord,
    before: PartitionRegistration,
    outcome: _Outcome,
    last_known: tuple[int, ...],
) -> None:
    """Store the replicas that may lead uncleanly; clear them once there is a leader."""
    wanted = last_known if outcome.leader == NO_LEADER else ()
    if wanted != before.last_known_elr:
        record.last_known_elr = list(wanted)


def _note_assignment(
    record: PartitionChangeRecord,
    before: PartitionRegistration,
    assignment: Assignment,
    rules: ElectionRules,
) -> None:
    """Add the changed fields of the assignment to the record."""
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
            # A removed replica learns of its removal through the new leader epoch.
            record.leader = before.leader
    if assignment.adding != before.adding_replicas:
        record.adding_replicas = list(assignment.adding)
    if assignment.removing != before.removing_replicas:
        record.removing_replicas = list(assignment.removing)


def _has_no_changes(record: PartitionChangeRecord) -> bool:
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
