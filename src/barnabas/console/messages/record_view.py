"""The one way from the bytes of a record to what the console shows.

Lists, pages, searches, filters, downloads and tails use a `RecordView`. None of them may read the
key, the value or the headers of a record itself: a mask could hide them.
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.console.messages.decoded import (
    KEY,
    LISTED_BYTES,
    VALUE,
    Decoded,
    ShownBytes,
    decode_plain,
)
from barnabas.console.messages.formats import AUTOMATIC
from barnabas.console.messages.one_record import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.messages.formats import Decoders, Formats
    from barnabas.console.messages.masking import Masks, TopicMasks

T = TypeVar("T")

_HEADERS_MAX = 50
# Bytes of records that the event loop decodes itself. One KiB may take it a millisecond.
_LOOP_BYTES = 8 * 1024
_HEADER_BYTES = 256
NO_CHOICES: Mapping[str, str] = MappingProxyType({})


class ShownMessage(NamedTuple):
    """A record as a page shows it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: ShownBytes
    value: ShownBytes
    headers: list[tuple[str, ShownBytes]]
    # What a record of an internal topic does; "" for others.
    words: str = ""
    # Fields of an address that shows the record in the same way.
    choices: Mapping[str, str] = NO_CHOICES
    fate: Fate = Fate.NONE


class DecodedRecord(NamedTuple):
    """A record, decoded and masked."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970.
    timestamp: int
    key: Decoded
    value: Decoded
    headers: list[tuple[str, Decoded]]
    # What a record of an internal topic does; "" for others, and if a mask applies.
    words: str = ""
    # Fields of an address that shows the record in the same way.
    choices: Mapping[str, str] = NO_CHOICES
    # What became of its transaction, as far as `TransactionMarks` looked it up.
    fate: Fate = Fate.NONE

    @property
    def size(self) -> int:
        """Number of bytes of the key, the value and the headers."""
        headers = sum(len(name) + value.size for name, value in self.headers)
        return self.key.size + self.value.size + headers

    def shown(self, limit: int = LISTED_BYTES) -> ShownMessage:
        """Return what a page shows: at most `limit` bytes of key and value each."""
        headers = [
            (name[:_HEADER_BYTES], value.shown(_HEADER_BYTES))
            for name, value in self.headers[:_HEADERS_MAX]
        ]
        return ShownMessage(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp=self.timestamp,
            key=self.key.shown(limit),
            value=self.value.shown(limit),
            headers=headers,
            words=self.words,
            choices=self.choices,
            fate=self.fate,
        )


def record_size(record: ConsumerRecord) -> int:
    """Return the number of bytes of the key, the value and the headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


class RecordView:
    """Decodes and masks records for one reader.

    Args:
        decoders: What the console can decode.
        masks: The rules of the console.
        formats: The formats that the reader chose.
        reveal: Whether to leave out the masks that administrators may lift. Only for
            administrators.
    """

    def __init__(
        self,
        decoders: Decoders,
        masks: Masks,
        formats: Formats = AUTOMATIC,
        *,
        reveal: bool = False,
    ) -> None:
        self._decoders = decoders
        self._all_masks = masks
        self._formats = formats
        self._reveal = reveal
        self._masks: dict[str, TopicMasks] = {}
        # Fields of an address that makes the same choices.
        self.choices = {**formats.fields, **({"reveal": "1"} if reveal else {})}

    @property
    def is_revealing(self) -> bool:
        """Whether masks are lifted that administrators may lift."""
        return self._reveal

    def masks(self, topic: str) -> TopicMasks:
        """Return the masks of a topic; false if it has none."""
        found = self._masks.get(topic)
        if found is None:
            found = self._masks[topic] = self._all_masks.of(topic, reveal=self._reveal)
        return found

    async def look_up(self, records: Iterable[ConsumerRecord]) -> None:
        """Look up the schemas of these records, before they are decoded."""
        await self._decoders.look_up(records, self._formats)

    async def decode_all(
        self,
        records: Sequence[ConsumerRecord],
        fits: Callable[[DecodedRecord], bool] = lambda _record: True,
    ) -> list[DecodedRecord]:
        """Return the records that fit, decoded and masked."""
        return await self._run(
            records, lambda: list(filter(fits, (self.decode(each) for each in records)))
        )

    async def show_all(
        self, records: Sequence[ConsumerRecord], limit: int = LISTED_BYTES
    ) -> list[ShownMessage]:
        """Return records as a page shows them, with at most `limit` bytes of key and value each."""
        return await self._run(
            records, lambda: [self.decode(each).shown(limit) for each in records]
        )

    async def _run(self, records: Sequence[ConsumerRecord], work: Callable[[], T]) -> T:
        """Run work that decodes records: in a thread, unless they are small.

        Any producer can write a record that takes long, and the event loop serves all users.
        """
        if sum(map(record_size, records)) <= _LOOP_BYTES:
            return work()
        return await self.run_in_thread(work)

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run work on records in one of the few threads for it."""
        async with self._decoders.turns:
            return await asyncio.to_thread(work)

    def decode(self, record: ConsumerRecord) -> DecodedRecord:
        """Return a record, decoded and masked."""
        key, value, words = self._decoders.decode(record, self._formats)
        headers = [(name, decode_plain(data)) for name, data in record.headers]
        masks = self.masks(record.topic)
        if masks:
            key, value = masks.part(KEY, key), masks.part(VALUE, value)
            headers = [(name, masks.header(name, each)) for name, each in headers]
            words = ""
        return DecodedRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            key,
            value,
            headers,
            words,
            self.choices,
        )
