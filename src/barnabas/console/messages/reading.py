"""Reads records for searches, downloads and new messages, with a bound of memory for all of them.

A fetch can be large: a broker sends at least one whole batch, whatever limit the fetch has. So a
large fetch is held by one reader at a time, and a reader that has to wait for its turn holds
nothing: it has dropped what it fetched, and reads it again. It closes its connections before its
turn is over, because the client would already fetch what follows. A turn that does not come in time
is an error, and the user tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.errors import ClientError
from barnabas.console.messages.transaction_marks import TransactionMarks
from barnabas.record.batch import COMPRESSION_MASK, HEADER_SIZE, MAGIC_V2
from barnabas.record.compression import NONE, decompress
from barnabas.record.record import CorruptBatchError, DecompressedTooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from barnabas import aio
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.fetch.record_set import BatchSpan
    from barnabas.client.topic_partition import TopicPartition

# Fetched bytes from which on a reader needs a turn.
LARGE_BYTES = 6 * 1024 * 1024
_TURN_S = 30.0
# A large fetch takes longer than one poll on a slow machine.
_POLLS_IN_TURN = 20


class BusyError(ClientError):
    """Others read large messages, so that this reader did not get its turn in time."""

    retriable = True


class LargeReads:
    """The turns of readers that hold large fetches, one at a time.

    Args:
        turn_s: How long a reader waits for its turn (seconds).
    """

    def __init__(self, turn_s: float = _TURN_S) -> None:
        self._turn_s = turn_s
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn, and hold it.

        Raises:
            BusyError: It did not come in time.
        """
        try:
            async with asyncio.timeout(self._turn_s):
                await self._lock.acquire()
        except TimeoutError:
            raise BusyError(
                f"others read large messages, and their turn has not ended within "
                f"{self._turn_s:g} s: try again later"
            ) from None
        try:
            yield
        finally:
            self._lock.release()


class Fetched(NamedTuple):
    """The records of one poll. The receiver takes the parts out, so that their memory is freed."""

    parts: list[tuple[TopicPartition, PartitionRecords]]
    # The next offset to read, of the partitions that have records.
    next_offsets: dict[TopicPartition, int]


class RecordReader:
    """A consumer without a group that holds a large fetch only in its turn.

    Args:
        open_consumer: Returns a consumer without a group, with further configuration. It is called
            again after a large fetch.
        turns: The turns of large fetches.
        isolation: The value of isolation.level.
        is_careful: Whether the first fetch waits for a turn, because it may be large. False for a
            reader that waits for new records.
    """

    def __init__(
        self,
        open_consumer: Callable[..., aio.Consumer],
        turns: LargeReads,
        isolation: str,
        *,
        is_careful: bool = True,
    ) -> None:
        self._open_consumer = open_consumer
        self._turns = turns
        self._isolation = isolation
        # Marks the records of transactions of the newest poll.
        self.marks = TransactionMarks(open_consumer, is_committed=isolation == "read_committed")
        # Whether the next fetch may be large: the first one, and one behind a large one.
        self._is_careful = is_careful
        # None before the first use, and after a large fetch.
        self._consumer: aio.Consumer | None = None
        # The partitions that the consumer reads; others of its assignment are paused.
        self._reads: set[TopicPartition] = set()

    @property
    def consumer(self) -> aio.Consumer:
        """The consumer, for look-ups of offsets. It may be another one after the next poll."""
        if self._consumer is None:
            config: dict[str, Any] = {"isolation.level": self._isolation}
            self._consumer = self._open_consumer(**config)
        return self._consumer

    def begin(self) -> None:
        """Read from the positions of the next poll, whatever was read before."""
        self._reads = set()

    @contextlib.asynccontextmanager
    async def poll(
        self, positions: Mapping[TopicPartition, int], seconds: float, max_records: int
    ) -> AsyncIterator[Fetched]:
        """Wait for records. A large fetch is held until the block ends.

        Args:
            positions: The partitions to read, with their next offsets.
            seconds: How long to wait for records.
            max_records: Maximum number of records.

        Raises:
            BusyError: Others read large messages.
            ClientError: The records cannot be read.
        """
        if not self._is_careful:
            records = await self._poll(positions, seconds, max_records)
            if _fetched_bytes(records) < LARGE_BYTES:
                yield _fetched(records)
                return
            # They are read again in the turn of this reader.
            del records
            await self._drop()
            self._is_careful = True
        async with self._turns.turn():
            records = await self._poll_in_turn(positions, seconds, max_records)
            fetched = _fetched(records)
            del records
            yield fetched

    async def _poll_in_turn(
        self, positions: Mapping[TopicPartition, int], seconds: float, max_records: int
    ) -> ConsumerRecords:
        """Poll until a fetch arrives. Afterwards, a reader of large fetches fetches no more."""
        for _ in range(_POLLS_IN_TURN):
            records = await self._poll(positions, seconds, max_records)
            if records:
                break
            # Behind a gap, only a position moves.
            if any([await self.position(tp) > offset for tp, offset in positions.items()]):
                self._is_careful = False
                return records
        if records and _fetched_bytes(records) < LARGE_BYTES:
            self._is_careful = False
        else:
            await self._drop()
        return records

    async def _poll(
        self, positions: Mapping[TopicPartition, int], seconds: float, max_records: int
    ) -> ConsumerRecords:
        consumer = self.consumer
        if not self._reads or not positions.keys() <= self._reads:
            consumer.assign(list(positions))
            consumer.resume(*positions)
            for tp, offset in positions.items():
                consumer.seek(tp, offset)
        else:
            consumer.pause(*(self._reads - positions.keys()))
        self._reads = set(positions)
        records = await consumer.poll(seconds, max_records=max_records)
        self.marks.note(records)
        return records

    async def position(self, tp: TopicPartition) -> int:
        """Return the next offset of a partition that the last poll read; -1 if it is not known."""
        return -1 if self._consumer is None else await self._consumer.position(tp)

    async def _drop(self) -> None:
        """Close the consumer, so that it holds and fetches nothing."""
        self._reads = set()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            # Without a wait for what is in flight, which would be large too.
            await consumer.close(0)

    async def aclose(self) -> None:
        """Close the consumers."""
        await self._drop()
        await self.marks.aclose()


def _fetched(records: ConsumerRecords) -> Fetched:
    offsets = {tp: committed.offset for tp, committed in records.next_offsets.items()}
    return Fetched(list(records.items()), offsets)


def _fetched_bytes(records: ConsumerRecords) -> int:
    """Return the bytes of the fetched batches, decompressed, or at least `LARGE_BYTES`."""
    size = 0
    for part in records.batches():
        for piece in part.pieces:
            size += batch_bytes(piece.batch.data, piece.batch.span)
            if size >= LARGE_BYTES:
                return size
    return size


def batch_bytes(data: bytes | memoryview, span: BatchSpan) -> int:
    """Return the bytes of a batch, decompressed, or at least `LARGE_BYTES`.

    Args:
        data: The bytes of a record set.
        span: The batch in them.
    """
    size, code = span.end - span.start, span.attributes & COMPRESSION_MASK
    if code == NONE:
        return size
    if span.magic != MAGIC_V2:
        # A message of an old format is rare, and so is decompressed in a turn.
        return LARGE_BYTES
    compressed = memoryview(data)[span.start + HEADER_SIZE : span.end]
    try:
        return len(decompress(code, compressed, LARGE_BYTES))
    except DecompressedTooLargeError:
        return LARGE_BYTES
    except (CorruptBatchError, ImportError):
        # The scan meets the error too, and shows it.
        return size
