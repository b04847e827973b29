"""The records that the user has received and not yet acknowledged, and those that are renewed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.share.acknowledge_type import AcknowledgeType
from barnabas.client.share.acknowledgements import Acknowledgements
from barnabas.client.share.errors import IllegalAcknowledgementError
from barnabas.client.share.share_records import ShareRecord, ShareRecords

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.errors import ClientError
    from barnabas.client.share.acquired_records import AcquiredPart, ShareSource
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["InFlightRecords"]


class _Batch:
    """The records of one source."""

    __slots__ = ("acknowledged", "acks", "failed", "records", "renewed", "renewing")

    def __init__(self) -> None:
        # Records that the user has; removed by `take`, added again by `take_renewed`.
        self.records: dict[int, ShareRecord] = {}
        # Offsets of `records` that have a type in `acks`.
        self.acknowledged: set[int] = set()
        # Acknowledgements that were not sent yet; moved out by `take`.
        self.acks = Acknowledgements()
        # Ranges (first offset, end offset) that could not be read; their acknowledgement in `acks`
        # may be replaced until `take`.
        self.failed: list[tuple[int, int]] = []
        # Records whose renewal was requested, and those whose renewal has succeeded.
        self.renewing: dict[int, ShareRecord] = {}
        self.renewed: dict[int, ShareRecord] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.acks or self.renewing or self.renewed)


class InFlightRecords:
    """Acknowledgements wait here until `take` moves them into a request."""

    def __init__(self) -> None:
        self._batches: dict[ShareSource, _Batch] = {}

    def nodes(self) -> set[int]:
        """Return the brokers that have acquired records which the user still has."""
        return {source.node_id for source in self._batches}

    def add(self, source: ShareSource, part: AcquiredPart) -> None:
        """Add the records that a poll returns, or the failure that it raises."""
        batch = self._batches.setdefault(source, _Batch())
        batch.records.update((record.offset, record) for record in part.records)
        batch.acks.merge(part.acknowledgements)
        if part.error is not None:
            error = part.error
            end = getattr(error, "next_offset", error.offset + 1)
            batch.failed.append((error.offset, end))

    # Acknowledgements

    def acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the user has, until `take` replacing an earlier type.

        Raises:
            IllegalAcknowledgementError: The record is not waiting to be acknowledged.
        """
        for source, batch in self._batches.items():
            if source.tp == tp and offset in batch.records:
                batch.acks.add(offset, kind)
                batch.acknowledged.add(offset)
                return
        raise _not_waiting(tp, offset)

    def acknowledge_offset(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the user has, or one that the last poll could not read.

        Raises:
            IllegalAcknowledgementError: There is no such record.
        """
        for source, batch in self._batches.items():
            if source.tp == tp and any(first <= offset < end for first, end in batch.failed):
                if kind is AcknowledgeType.RENEW:
                    raise IllegalAcknowledgementError(
                        f"{tp}: the record at offset {offset} could not be read and cannot be "
                        f"renewed: accept, release or reject it"
                    )
                batch.acks.add(offset, kind)
                return
        self.acknowledge(tp, offset, kind)

    def accept_all(self, unseen: Collection[ShareRecord] = ()) -> None:
        """Accept all records that have no type yet, except for those in `unseen`."""
        skipped = {(r.topic, r.partition, r.offset) for r in unseen}
        for source, batch in self._batches.items():
            for offset in batch.records:
                if offset not in batch.acknowledged and (*source.tp, offset) not in skipped:
                    batch.acks.add(offset, AcknowledgeType.ACCEPT)
                    batch.acknowledged.add(offset)

    @property
    def unacknowledged(self) -> int:
        """Number of records that the user has and has not acknowledged."""
        return sum(len(b.records) - len(b.acknowledged) for b in self._batches.values())

    def take(self) -> dict[ShareSource, Acknowledgements]:
        """Remove the acknowledged records; return their acknowledgements for the next requests."""
        found: dict[ShareSource, Acknowledgements] = {}
        for source, batch in list(self._batches.items()):
            if batch.acks:
                for offset in batch.acks.renewed:
                    batch.renewing[offset] = batch.records[offset]
                for offset in batch.acknowledged:
                    del batch.records[offset]
                found[source], batch.acks = batch.acks, Acknowledgements()
                batch.acknowledged = set()
            batch.failed = []
            if batch.is_empty:
                del self._batches[source]
        return found

    # Renewals

    def on_acknowledged(
        self, source: ShareSource, acks: Acknowledgements, error: ClientError | None
    ) -> None:
        """Handle the result of acknowledgements: renewed records may be returned again."""
        batch = self._batches.get(source)
        if batch is None:
            return
        for offset in acks.renewed:
            record = batch.renewing.pop(offset, None)
            if record is not None and error is None:
                batch.renewed[offset] = record
        if batch.is_empty:
            del self._batches[source]

    @property
    def is_renewing(self) -> bool:
        """Whether the result of a renewal is pending."""
        return any(batch.renewing for batch in self._batches.values())

    def take_renewed(self) -> ShareRecords:
        """Return the renewed records, which the user has to acknowledge again."""
        parts: dict[TopicPartition, list[ShareRecord]] = {}
        for source, batch in self._batches.items():
            if batch.renewed:
                renewed = [batch.renewed[offset] for offset in sorted(batch.renewed)]
                parts.setdefault(source.tp, []).extend(renewed)
                batch.records.update(batch.renewed)
                batch.renewed = {}
        return ShareRecords(parts)

    def clear(self) -> None:
        """Forget all records, because the share sessions end."""
        self._batches = {}


def _not_waiting(tp: TopicPartition, offset: int) -> IllegalAcknowledgementError:
    return IllegalAcknowledgementError(
        f"{tp}: the record at offset {offset} is not waiting to be acknowledged: it was not "
        f"returned by the last poll, or its acknowledgement was sent already"
    )
