"""The records that `consume` reads: where it begins, which sources there are, what it skips.

A source reads chosen partitions, or those that a group assigns. `--on-error skip` counts, reports
and skips unreadable data.
"""

from __future__ import annotations

import re
import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from barnabas.cli.common.output import moment_ms, warning
from barnabas.cli.common.printable import counted
from barnabas.cli.common.units import duration_ms
from barnabas.client.errors import ClientError, CorruptRecordsError, RecordDeserializationError
from barnabas.client.fetch.record_set import read_records, span_records, visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.cli.records.templates import Render
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import ConsumerRecord, RecordSet
    from barnabas.client.fetch.record_stream import RecordStream
    from barnabas.record.compiled import CompiledRecord


class Chunk(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    records: Sequence[CompiledRecord]
    # Offset at which reading continues, after records that are not shown (transaction markers).
    next_offset: int


class Source(Protocol):
    """A source of records."""

    @property
    def is_finished(self) -> bool:
        """Whether no more records will arrive."""
        ...

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive, if it is known (a broker does not answer)."""
        ...

    @property
    def obstacle(self) -> str | None:
        """Why no records can arrive at present, in words; None if only new records are missing."""
        ...

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Return the available records, or those that arrive before the timeout."""
        ...

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit the positions for the group, if there is a group.

        Args:
            printed: Offset after the last printed record, where it changed since the last commit.
        """
        ...


class RangeSource:
    """Chosen partitions, from an offset to an end offset or without end.

    With a group, its offsets are committed, although the source is not a member.
    """

    def __init__(
        self, client: Client, stream: RecordStream, group: str | None, errors: ErrorPolicy
    ) -> None:
        self._client = client
        self._errors = errors
        # Raised by the next poll: the records before the corrupt batch are returned first.
        self._pending_error: CorruptRecordsError | None = None
        self._stream = stream
        self._partitions = frozenset(stream.positions)
        self._group = group
        # The next commit includes the starts of all partitions, as in a `GroupSource`.
        self._uncommitted_starts = stream.positions

    @property
    def is_finished(self) -> bool:
        """Whether all partitions have reached their ends."""
        return self._stream.is_finished and self._pending_error is None

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive."""
        return self._stream.trouble

    @property
    def obstacle(self) -> str | None:
        """The partitions that have no leader. This asks a broker."""
        try:
            names = {tp.topic for tp in self._partitions}
            topics = self._client.describe_topics(names, may_be_new=False)
        except ClientError:
            return None
        return missing_leaders(topics, self._partitions)

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Return the next record set.

        Raises:
            CorruptRecordsError: A batch is corrupt, and errors are not skipped.
        """
        if self._pending_error is not None:
            raise self._pending_error
        try:
            found = self._stream.poll(timeout_ms)
        except CorruptRecordsError as error:
            self._errors.handle(error)
            self._stream.seek(error.partition, error.next_offset)
            return (Chunk(error.partition, (), error.next_offset),)
        if found is None:
            return ()
        partition = TopicPartition(found.topic, found.partition)
        try:
            return (Chunk(partition, read_records(found), found.end_offset),)
        except CorruptBatchError as error:
            return (self._readable(partition, found, error),)

    def _readable(
        self, partition: TopicPartition, found: RecordSet, cause: CorruptBatchError
    ) -> Chunk:
        """Return the readable records of a set.

        Without skipping, return only the records before the first error.
        """
        try:
            spans = visible_batches(found)
        except CorruptBatchError:
            error = _corrupt(partition, found.first_offset, found.end_offset, cause)
            self._errors.handle(error)
            return Chunk(partition, (), found.end_offset)
        readable: list[CompiledRecord] = []
        next_offset = found.end_offset
        for span in spans:
            try:
                readable += span_records(found.data, span)
            except CorruptBatchError as reason:
                first = max(span.base_offset, found.first_offset)
                error = _corrupt(partition, first, span.next_offset, reason)
                if not self._errors.skip:
                    self._pending_error, next_offset = error, first
                    break
                self._errors.handle(error)
        kept = [r for r in readable if found.first_offset <= r.offset < found.end_offset]
        return Chunk(partition, kept, next_offset)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets for a group without members."""
        offsets = {**self._uncommitted_starts, **printed}
        if self._group is not None and offsets:
            self._client.commit_offsets(self._group, offsets)
            self._uncommitted_starts = {}


def missing_leaders(
    topics: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition]
) -> str | None:
    """Return a sentence that names the partitions without a leader; None if all have one."""
    missing = sorted(tp for tp in partitions if tp.partition not in topics[tp.topic].available)
    if not missing:
        return None
    first = missing[0]
    more = f" and {counted(len(missing) - 1, 'other partition')}" if len(missing) > 1 else ""
    why = f"`barnabas why {first.topic}:{first.partition}` explains it"
    return f"{first}{more} {'have' if more else 'has'} no leader; {why}"


def _corrupt(
    partition: TopicPartition, offset: int, next_offset: int, cause: CorruptBatchError
) -> CorruptRecordsError:
    return CorruptRecordsError(partition, offset, str(cause), next_offset)


Offsets = dict["TopicPartition", int]


class PlaceKind(Enum):
    """The kind of a place."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


class Place(NamedTuple):
    """A place, specified in the same way for every partition."""

    kind: PlaceKind
    # An offset, a number of records before the end, or ms since 1970.
    number: int = 0


BEGINNING = Place(PlaceKind.BEGINNING)
END = Place(PlaceKind.END)

# The words of kcat, of Kafka's console consumer and of rpk.
_WORDS = {
    "beginning": BEGINNING,
    "earliest": BEGINNING,
    "start": BEGINNING,
    "end": END,
    "latest": END,
}


def parse_place(text: str, option: str) -> Place:
    """Parse a place: a word, N, -N, a time, a duration before now, or @ms as in kcat.

    Raises:
        click.UsageError: The text has none of these formats.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text.isdigit():
        return Place(PlaceKind.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text):
        return Place(PlaceKind.BEFORE_END, int(text[1:]))
    kcat = re.fullmatch(r"([se]?)@(\d+)", text)
    if kcat and kcat[1] == "e" and option != "--to":
        raise click.UsageError(f"{option} {text}: use --to @{kcat[2]} for the end of reading")
    if kcat:
        return Place(PlaceKind.TIME, int(kcat[2]))
    if text == "stored":
        raise click.UsageError(f"{option} stored: use --group for the offsets that it committed")
    if text == ":end":
        raise click.UsageError(f"{option} :end: use --exit-at-end with --from beginning")
    ago = duration_ms(text.removeprefix("@-"))
    if ago is not None:
        return Place(PlaceKind.TIME, _now_ms() - ago)
    try:
        return Place(PlaceKind.TIME, moment_ms(text.removeprefix("@"), option))
    except click.UsageError:
        raise click.UsageError(
            f"{option} {text}: write beginning, end, an offset, -N, an ISO time such as "
            "2026-01-31T12:00, @MILLISECONDS, or a duration before the current time: "
            "90s, 15m, 2h, 7d"
        ) from None


def resolve(
    client: Client, wanted: Sequence[TopicPartition], place: Place, ends: Offsets
) -> Offsets:
    """Return the offsets of a place; a time after all records gives the end.

    Args:
        client: Looks up offsets.
        wanted: The partitions.
        place: The place to resolve.
        ends: Recent log end offsets (or last stable offsets) of the partitions.
    """
    match place.kind:
        case PlaceKind.OFFSET:
            return dict.fromkeys(wanted, place.number)
        case PlaceKind.END:
            return {tp: ends[tp] for tp in wanted}
        case PlaceKind.BEFORE_END:
            first = client.list_offsets(dict.fromkeys(wanted, "earliest"))
            return {tp: max(first[tp].offset, ends[tp] - place.number) for tp in wanted}
        case PlaceKind.BEGINNING:
            first = client.list_offsets(dict.fromkeys(wanted, "earliest"))
            return {tp: first[tp].offset for tp in wanted}
        case PlaceKind.TIME:
            found = client.list_offsets(dict.fromkeys(wanted, place.number))
            # Later records may have older timestamps. A time after all records gives the end.
            return {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp] for tp in wanted}


def check_end(place: Place) -> Place:
    """Return a place for the end of reading, whose offset must be known now.

    Raises:
        click.UsageError: The time is in the future.
    """
    if place.kind is PlaceKind.TIME and place.number > _now_ms():
        raise click.UsageError("--to: that time is in the future; omit --to, and end with Ctrl-C")
    return place


def _now_ms() -> int:
    return int(time.time() * 1000)


# Limit for individually reported errors. At the end, only the total is reported.
_REPORTED_MAX = 5


class ErrorPolicy:
    """Decides whether an unreadable record or batch ends the command, and counts the skipped.

    Args:
        skip: Whether to continue; otherwise the first error is raised.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        # Number of records that could not be deserialized.
        self.records = 0
        # Number of corrupt batches; their number of records is unknown.
        self.batches = 0
        # Called for each skipped record and batch.
        self.on_skip: Callable[[CorruptRecordsError | RecordDeserializationError], object] = _ignore

    def handle(self, error: CorruptRecordsError | RecordDeserializationError) -> None:
        """Count the error and print a warning.

        Raises:
            CorruptRecordsError: The error itself, unless errors are skipped.
            RecordDeserializationError: The error itself, unless errors are skipped.
        """
        if not self.skip:
            raise error
        self.on_skip(error)
        is_reported = self.records + self.batches < _REPORTED_MAX
        if isinstance(error, CorruptRecordsError):
            self.batches += 1
            last = error.next_offset - 1
            span = f"offset {error.offset}" + (f" to {last}" if last > error.offset else "")
            reason = "a corrupt batch"
        else:
            self.records += 1
            span = f"offset {error.offset}"
            reason = f"the {error.what} cannot be deserialized: {error.__cause__}"
        if is_reported:
            warning(f"skipped {error.partition} {span}: {reason}")

    def render(
        self,
        render: Render,
        records: Sequence[CompiledRecord] | Sequence[ConsumerRecord],
        limit: int | None,
    ) -> tuple[bytes, int, int | None]:
        """Render records one by one, without those that cannot be deserialized.

        Args:
            render: Renders records of their partition.
            records: All wanted records.
            limit: The maximum number of printed records; None for no limit.

        Returns:
            The text, the number of printed records, and the offset after the last printed record if
                the limit was reached (else None).
        """
        pieces: list[bytes] = []
        for record in records:
            try:
                pieces.append(render([record]))
            except RecordDeserializationError as error:
                self.handle(error)
                continue
            if len(pieces) == limit:
                return b"".join(pieces), len(pieces), record.offset + 1
        return b"".join(pieces), len(pieces), None

    def warn_of_total(self) -> None:
        """Print the number of skipped records and batches, if there are any."""
        counts = []
        if self.records:
            counts.append(counted(self.records, "record"))
        if self.batches:
            counts.append(f"{self.batches} corrupt batch{'' if self.batches == 1 else 'es'}")
        if counts:
            warning(f"skipped {' and '.join(counts)} in total")


def _ignore(_error: CorruptRecordsError | RecordDeserializationError) -> None:
    pass
