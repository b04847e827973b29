"""The state of one partition in the metadata log (KIP-631; directories: KIP-858; ELR: KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.metadata.metadata_version import partition_record_version
from barnabas.protocol.records.topics import PartitionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.records.topics import PartitionChangeRecord

NO_LEADER = -1
NO_LEADER_CHANGE = -2

# Reserved directory ids (KIP-858): the metadata is older than directory ids; the broker has not
# reported the directory yet; the directory is offline.
DIRECTORY_MIGRATING = bytes(16)
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"
RESERVED_DIRECTORIES = frozenset({DIRECTORY_UNASSIGNED, DIRECTORY_LOST, DIRECTORY_MIGRATING})

RECOVERED = 0
RECOVERING = 1
_RECOVERY_UNCHANGED = -1


class PartitionRegistration(msgspec.Struct, frozen=True):
    """The replicas, leader and epochs of a partition."""

    # Broker ids in order of preference; the first is the preferred leader.
    replicas: tuple[int, ...]
    # Log directory id of each replica, in the order of `replicas`.
    directories: tuple[bytes, ...]
    # In-sync replicas; a subset of `replicas`.
    isr: tuple[int, ...]
    # Broker id of the leader; NO_LEADER if no replica can lead.
    leader: int
    # Increases with every change record that names a leader.
    leader_epoch: int
    # Increases with every change of the partition.
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    # Eligible leader replicas: they have all committed records, but are not in `isr`.
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    # RECOVERING after an unclean election, until the leader reports RECOVERED.
    leader_recovery_state: int = RECOVERED

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """Create the partition that a PartitionRecord declares."""
        replicas = tuple(record.replicas)
        return cls(
            replicas=replicas,
            directories=_directories_for(replicas, record.directories),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Return this partition with `change` applied; null fields of the record change nothing."""
        replicas = _or_kept(change.replicas, self.replicas)
        directories = self.directories
        if change.directories is not None or replicas != self.replicas:
            directories = _directories_for(replicas, change.directories)
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        recovery = change.leader_recovery_state
        return PartitionRegistration(
            replicas=replicas,
            directories=directories,
            isr=_or_kept(change.isr, self.isr),
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=_or_kept(change.removing_replicas, self.removing_replicas),
            adding_replicas=_or_kept(change.adding_replicas, self.adding_replicas),
            elr=_or_kept(change.eligible_leader_replicas, self.elr),
            last_known_elr=_or_kept(change.last_known_elr, self.last_known_elr),
            leader_recovery_state=(
                self.leader_recovery_state if recovery == _RECOVERY_UNCHANGED else recovery
            ),
        )

    def without_elr(self) -> PartitionRegistration:
        """Return this partition without eligible leader replicas (ClearElrRecord)."""
        if not self.elr and not self.last_known_elr:
            return self
        return replace(self, elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def to_record(
        self, topic_id: bytes, partition: int, metadata_version: int
    ) -> tuple[PartitionRecord, int]:
        """Return the record that declares this partition, and the record's version."""
        version = partition_record_version(metadata_version)
        record = PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if version >= 1 else [],
            eligible_leader_replicas=list(self.elr) if version >= 2 and self.elr else None,
            last_known_elr=(
                list(self.last_known_elr) if version >= 2 and self.last_known_elr else None
            ),
        )
        return record, version

    @property
    def preferred_leader(self) -> int:
        """Broker id of the first replica; NO_LEADER if there are no replicas."""
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory_of(self, broker_id: int) -> bytes:
        """Return the directory of a replica; DIRECTORY_UNASSIGNED if the broker has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return DIRECTORY_UNASSIGNED


def _or_kept(new: list[int] | None, kept: tuple[int, ...]) -> tuple[int, ...]:
    return kept if new is None else tuple(new)


def _directories_for(
    replicas: tuple[int, ...], directories: Sequence[bytes] | None
) -> tuple[bytes, ...]:
    if not directories:
        return (DIRECTORY_MIGRATING,) * len(replicas)
    assert len(directories) == len(replicas), (replicas, directories)
    return tuple(directories)
