"""Records that are read from a topic and written to another one, such as dead letters.

Keys, values and headers are copied as bytes. The user drops headers, adds others, and chooses the
partition and the timestamp.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError, UnknownPartitionError
from barnabas.client.fetch.record_set import ConsumerRecord, iter_span_records, visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import FormError
from barnabas.console.messages.reading import LARGE_BYTES, batch_bytes
from barnabas.console.messages.record_view import record_size
from barnabas.console.writing.payloads import headers
from barnabas.record.batch import MAGIC_V2
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.console.forms import Fields

RECORDS_MAX = 100
BYTES_MAX = 8 * 1024 * 1024
_PLACE = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)
# Offsets of a partition that are this near are read by one request.
_GAP_MAX = 100
# The headers that name the source of a record.
ORIGIN = ("resent.from.topic", "resent.from.partition", "resent.from.offset")

Header = tuple[str, bytes | None]


def chosen_places(form: Fields) -> list[tuple[int, int]]:
    """Return the partitions and offsets that the fields `at` have, in order.

    Each is `PARTITION-OFFSET`. Checked boxes have a field each; a link has one with commas.

    Raises:
        FormError: There are none or too many, or a place has another form.
    """
    places = set()
    for text in ",".join(form.texts("at")).split(",") if form.has("at") else ():
        fits = _PLACE.fullmatch(text)
        if fits is None:
            raise FormError(f"{text} is not a partition and an offset: write PARTITION-OFFSET")
        places.add((int(fits[1]), int(fits[2])))
    if not places:
        raise FormError("choose messages first")
    if len(places) > RECORDS_MAX:
        raise FormError(f"choose at most {RECORDS_MAX} messages, not {len(places)}")
    return sorted(places)


def read_sources(
    client: Client, topic: str, places: Sequence[tuple[int, int]]
) -> list[ConsumerRecord]:
    """Read the records at these places, which are in order.

    Raises:
        FormError: A record does not exist (any more), or they are too large together.
        ClientError: They cannot be read.
    """
    _check_offsets(client, topic, places)
    found: dict[tuple[int, int], ConsumerRecord] = {}
    total = 0
    for tp, begin, end in _ranges(topic, places):
        for records in client.fetch_range({tp: (begin, end)}):
            for source in _records_at(records, tp, places):
                found[tp.partition, source.offset] = source
                total += record_size(source)
                if total > BYTES_MAX:
                    raise FormError(
                        f"the messages have over {BYTES_MAX // 1024 // 1024} MiB together: choose "
                        f"fewer"
                    )
    for partition, offset in places:
        if (partition, offset) not in found:
            raise FormError(f"{topic} has no message at partition {partition}, offset {offset}")
    return [found[place] for place in places]


def _records_at(
    records: RecordSet, tp: TopicPartition, places: Sequence[tuple[int, int]]
) -> Iterator[ConsumerRecord]:
    """Yield the records of a set at these places. Batches without such a place are not decoded.

    Raises:
        FormError: A batch is too large: while it is decoded, it would delay all other pages.
        CorruptRecordsError: A batch is malformed.
    """
    offsets = [offset for partition, offset in places if partition == tp.partition]
    for span in visible_batches(records):
        # Only the batches of the newest format have reliable offsets and sizes in their headers.
        has_header = span.magic == MAGIC_V2
        wanted = {
            each
            for each in offsets
            if not has_header or span.base_offset <= each < span.next_offset
        }
        if not wanted:
            continue
        if has_header and batch_bytes(records.data, span) >= LARGE_BYTES:
            raise FormError(
                f"{tp} has offset {min(wanted)} in a batch of {LARGE_BYTES // 1024 // 1024} MiB or "
                f"more. The console sends only messages of smaller batches again: use a program "
                f"with a consumer and a producer"
            )
        try:
            for each in iter_span_records(records.data, span):
                if each.offset in wanted:
                    yield ConsumerRecord(
                        *tp,
                        each.offset,
                        each.timestamp,
                        each.timestamp_type,
                        each.key,
                        each.value,
                        tuple(each.headers),
                    )
        except CorruptBatchError as error:
            raise CorruptRecordsError(tp, span.base_offset, str(error), span.next_offset) from None


def _check_offsets(client: Client, topic: str, places: Iterable[tuple[int, int]]) -> None:
    """Check that the offsets are inside of their logs; a read of others would wait for them."""
    known = client.describe_topics([topic], may_be_new=False)[topic].partitions
    for partition, _ in places:
        if partition not in known:
            raise UnknownPartitionError(topic, partition, len(known))
    wanted = {TopicPartition(topic, partition) for partition, _ in places}
    starts = client.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = client.list_offsets(dict.fromkeys(wanted, "latest"))
    for partition, offset in places:
        tp = TopicPartition(topic, partition)
        start, end = starts[tp].offset, ends[tp].offset
        if not start <= offset < end:
            raise FormError(f"{tp} has offsets {start} to {end}, and not {offset}")


def _ranges(
    topic: str, places: Iterable[tuple[int, int]]
) -> Iterable[tuple[TopicPartition, int, int]]:
    """Join places of a partition that are near each other to ranges of offsets."""
    ranges: list[tuple[TopicPartition, int, int]] = []
    for partition, offset in places:
        tp = TopicPartition(topic, partition)
        last = ranges[-1] if ranges else None
        if last is not None and last[0] == tp and offset - last[2] < _GAP_MAX:
            ranges[-1] = (tp, last[1], offset + 1)
        else:
            ranges.append((tp, offset, offset + 1))
    return ranges


class Resending(NamedTuple):
    """What the user chose for the copies."""

    topic: str
    target: str
    places: list[tuple[int, int]]
    # "same", "key", or a number.
    partition: str
    keeps_timestamp: bool
    names_origin: bool
    dropped: frozenset[str]
    added: tuple[Header, ...]

    @classmethod
    def parse(cls, form: Fields) -> Resending:
        """Return the choices of a form.

        Raises:
            FormError: A field is missing or malformed.
        """
        partition = form.stripped("partition") or "key"
        if partition not in ("same", "key"):
            form.number("partition")
        return cls(
            form.required("topic"),
            form.required("target"),
            chosen_places(form),
            partition,
            form.has("keep_timestamp"),
            form.has("origin"),
            frozenset(form.texts("drop")),
            tuple(headers(form, "add")),
        )

    def target_partition(self, source: ConsumerRecord) -> int | None:
        """Return the partition of a copy; None for that of its key."""
        if self.partition == "same":
            return source.partition
        return None if self.partition == "key" else int(self.partition)

    def headers_of(self, source: ConsumerRecord) -> list[Header]:
        """Return the headers of a copy."""
        kept = [each for each in source.headers if each[0] not in self.dropped]
        origin: list[Header] = []
        if self.names_origin:
            values = (self.topic, source.partition, source.offset)
            origin = [
                (name, str(value).encode()) for name, value in zip(ORIGIN, values, strict=True)
            ]
        return [*kept, *self.added, *origin]
