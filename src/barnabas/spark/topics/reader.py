"""`spark.read` and `spark.readStream` with `format("barnabas")`: plan tasks, and read in them.

A stream has rate limits and AvailableNow, and shows its offsets in a consumer group. Offsets in the
checkpoint are final: at most the high watermark, or the last stable offset. A range of offsets
always yields the same records, which makes exactly-once output to files and tables possible.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.errors import UnknownTopicError
from barnabas.spark.errors import DataLossError, OptionError
from barnabas.spark.topics.offsets import (
    OffsetRange,
    Offsets,
    from_json,
    limit_offsets,
    ranges_between,
    split_ranges,
    to_json,
)
from barnabas.spark.topics.planner import lost_offset, without_lost_ends, without_lost_starts
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set as AbstractSet

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.clock import Clock
    from barnabas.spark.topics.options import SourceOptions
    from barnabas.spark.topics.planner import Planner

    Json = dict[str, dict[str, int]]

logger = logging.getLogger(__name__)
# The limit when the user sets only a minimum. Without a limit, Spark does not allow the source to
# delay records.
_NO_MAXIMUM = (1 << 63) - 1
# After a failed commit, no offsets are committed to the group for this time.
_MIRROR_PAUSE_MS = 60_000.0


@message_first
class TopicReader(DataSourceReader):
    """Plans the read on the driver; Spark pickles it for its workers, so it has plain values."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range per task; this call fixes the offsets at which the read ends.

        Raises:
            OptionError: the offset options do not fit the partitions.
            NoBrokersError: no broker responded in time.
        """
        from barnabas.spark.topics.clients import planning_client
        from barnabas.spark.topics.planner import Planner

        options = self._options
        planner = Planner(planning_client(options.client), options)
        selected = planner.partitions()
        start = planner.starting(selected)
        end = planner.ending(selected)
        _check_order(start, end)
        ranges = split_ranges(
            ranges_between(start, end), options.min_partitions, options.max_records_per_partition
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one range; if the read has no ranges, Spark passes None."""
        from barnabas.spark.topics.task import read_range

        if isinstance(partition.value, OffsetRange):
            yield from read_range(self._options, partition.value, self._schema)


def _check_order(start: dict[TopicPartition, int], end: Offsets) -> None:
    for tp, offset in end.items():
        if start[tp] > offset:
            raise OptionError(f"{tp}: reading starts at {start[tp]}, after its end {offset}")


@message_first
class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs on the driver for the lifetime of the query; a copy of it reads on each worker."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Clock) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        # Created by the driver's first call; never sent to workers.
        self._planner: Planner | None = None
        # End offsets of an AvailableNow query, constant once set; None for other triggers.
        self._target: Offsets | None = None
        # What `latestOffset` found, until Spark asks for it by `reportLatestOffset` in the same
        # trigger.
        self._found: Offsets | None = None
        # Time of the last trigger that did not wait, in ms, for maxTriggerDelay.
        self._triggered_ms: float | None = None
        self._mirror_paused_until_ms = 0.0
        # Offsets last committed to the group; None before the first commit. If the group has other
        # offsets later, another query uses it too.
        self._mirrored: Offsets | None = None
        self._is_group_shared = False

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_planner": None}

    # Offsets

    def initialOffset(self) -> Json:
        """Return the offsets at which a query without a checkpoint starts."""
        planner = self._planning()
        return to_json(planner.starting(planner.partitions()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of records per trigger, from the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMaxRows(_NO_MAXIMUM)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the offsets at which the next trigger ends; `start` if it should wait.

        Raises:
            DataLossError: a partition became shorter, and failOnDataLoss is on.
        """
        begin = without_lost_starts(from_json(start), self._current_ids)
        # Spark calls this when the batch that ends at `start` is complete, also before a pause. It
        # calls `commit` only with the next batch.
        self._mirror(begin)
        if self._target is not None:
            latest = dict(self._target)
        else:
            may_be_gone = {tp.topic for tp in begin}
            if not self._options.fail_on_data_loss:
                may_be_gone |= self._selected_topics()
            latest = self._found = self._latest(may_be_gone)
        lost = self._check_loss(begin, latest)
        if lost:
            return to_json(begin | lost)
        if isinstance(limit, ReadMaxRows):
            begin |= self._planning().earliest(tp for tp in latest if tp not in begin)
            if self._should_wait(begin, latest):
                return start
            latest = limit_offsets(begin, latest, limit.max_rows)
        return to_json(latest)

    def reportLatestOffset(self) -> Json:
        """Return the end of each partition; Spark's progress derives the lag from it."""
        latest, self._found = self._found, None
        if latest is None:
            latest = self._latest(self._selected_topics())
        return to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the offsets at which the query ends."""
        self._target = self._latest(self._selected_topics())

    def _latest(self, may_be_gone: AbstractSet[str]) -> Offsets:
        """Return the end of each partition.

        Args:
            may_be_gone: topics that are omitted if they do not exist. `_check_loss` reports those
                that the query was reading.
        """
        planner = self._planning()
        try:
            return planner.latest(planner.partitions(may_be_gone))
        except UnknownTopicError:
            # A topic may be deleted between the two requests.
            return planner.latest(planner.partitions(may_be_gone))

    def _current_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        return self._planning().current_ids(topics)

    def _selected_topics(self) -> set[str]:
        """Return the topics that the options name."""
        return set(self._options.selection.named_topics)

    def _should_wait(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether minOffsetsPerTrigger is not reached and maxTriggerDelay has not passed.

        The first trigger does not wait, as in Spark's connector.
        """
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._target is not None:
            return False
        now = self._clock.monotonic_ms()
        if (
            self._triggered_ms is not None
            and now - self._triggered_ms < self._options.max_trigger_delay_ms
            and sum(max(0, offset - begin[tp]) for tp, offset in latest.items()) < minimum
        ):
            return True
        self._triggered_ms = now
        return False

    def _check_loss(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Report partitions that were deleted, recreated or became shorter.

        Returns:
            Lost offsets at which the batch must end, so that its planning fails, also after a
            restart; see `planner`. Empty without loss, and if failOnDataLoss=false allows it.
        """
        planner = self._planning()
        recreated = planner.recreated()
        gone = sorted(tp for tp in begin if tp not in latest)
        if self._options.fail_on_data_loss:
            existing = {tp.topic for tp in latest}
            ids = {tp: planner.last_id(tp.topic) for tp in gone if tp.topic not in existing}
            ids |= {tp: recreated[tp.topic] for tp in begin if tp.topic in recreated}
            ends = {tp: lost_offset(begin[tp], topic_id) for tp, topic_id in ids.items()}
            lost = {tp: end for tp, end in ends.items() if end is not None}
            if lost:
                return lost
        for name in sorted(recreated):
            self._lost(
                f"Topic {name} was deleted and created again while the query was reading it."
            )
        if gone:
            names = ", ".join(map(str, gone[:5]))
            self._lost(f"Partitions that the query was reading no longer exist: {names}.")
        for tp, offset in latest.items():
            if offset < begin.get(tp, 0):
                self._lost(f"{tp} ends at {offset}, but was read up to {begin[tp]} already.")
        return {}

    def _lost(self, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(problem)
        logger.warning("%s The lost records are left out, because failOnDataLoss=false", problem)

    # Reading

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return one range per task; a restart computes the same ranges from the same offsets.

        Raises:
            DataLossError: the batch ends at a lost offset, see `planner`.
        """
        begin, until = from_json(start), from_json(end)
        until = without_lost_ends(
            until, self._current_ids, fail_on_data_loss=self._options.fail_on_data_loss
        )
        begin = without_lost_starts(begin, self._current_ids)
        ranges = split_ranges(
            ranges_between(begin, until),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one range; runs on a worker and keeps no state."""
        from barnabas.spark.topics.task import read_range

        if isinstance(partition.value, OffsetRange):
            yield from read_range(self._options, partition.value, self._schema)

    # Progress

    def _mirror(self, offsets: Offsets) -> None:
        """Commit the query's offsets to a consumer group, so that tools can show its progress.

        The group has no influence on the query: it resumes from the checkpoint only.
        """
        if (
            not self._options.mirror_offsets
            or offsets == self._mirrored
            or self._clock.monotonic_ms() < self._mirror_paused_until_ms
        ):
            return
        from barnabas.client.errors import ClientError
        from barnabas.spark.topics.clients import mirroring_client

        group = self._options.group_id
        try:
            client = mirroring_client(self._options.client)
            self._warn_if_shared(client)
            client.commit_offsets(group, {**offsets})
        except ClientError as problem:
            self._mirror_paused_until_ms = self._clock.monotonic_ms() + _MIRROR_PAUSE_MS
            logger.warning("Progress is not shown in group %s: %s", group, problem)
            return
        self._mirrored = offsets

    def _warn_if_shared(self, client: Client) -> None:
        """Warn once if the group's offsets differ from those that this query committed last."""
        if self._mirrored is None or self._is_group_shared:
            return
        group = self._options.group_id
        found = client.committed(group, self._mirrored)
        for tp, offset in self._mirrored.items():
            if tp in found and found[tp].offset != offset:
                self._is_group_shared = True
                logger.warning(
                    "Group %s shows the progress of another query too: %s was committed at %d,"
                    " then at %d. Set the option groupIdPrefix or kafka.group.id for each query.",
                    group,
                    tp,
                    offset,
                    found[tp].offset,
                )
                return

    def stop(self) -> None:
        """End the query; the client closes when its process ends."""
        self._planner = None

    def _planning(self) -> Planner:
        if self._planner is None:
            from barnabas.spark.topics.clients import planning_client
            from barnabas.spark.topics.planner import Planner

            self._planner = Planner(planning_client(self._options.client), self._options)
        return self._planner
