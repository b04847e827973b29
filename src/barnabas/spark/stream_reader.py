"""`spark.readStream.format("barnabas")`: admission control, AvailableNow, offsets in a group.

Offsets in the checkpoint are final (high watermark or last stable offset), and a range of them
always gives the same records: on that rests exactly-once into files and tables.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.errors import UnknownTopicError
from barnabas.spark.errors import DataLossError
from barnabas.spark.offsets import Offsets, from_json, to_json
from barnabas.spark.ranges import OffsetRange, limit_offsets, ranges_between, split_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.facade import Client
    from barnabas.runtime.clock import Clock
    from barnabas.spark.options import SourceOptions
    from barnabas.spark.planner import Planner

    Json = dict[str, dict[str, int]]

logger = logging.getLogger(__name__)

# Stands for "no maximum" where a minimum is given: only with a limit of its own does Spark let the
# source hold data back.
_NO_MAXIMUM = (1 << 63) - 1
# After a failure the group is left alone for so long.
_MIRROR_PAUSE_MS = 60_000.0


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query runs; a copy of it reads on each worker."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Clock) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        # Made on the driver's first call, never sent to workers.
        self._planner: Planner | None = None
        # Where an AvailableNow query ends; None for other triggers. Never moves once set.
        self._target: Offsets | None = None
        # When records were last taken, for maxTriggerDelay.
        self._triggered_ms: float | None = None
        self._mirror_paused_until_ms = 0.0
        # What the group was last told; None before. A group that has something else then is
        # shared with another query.
        self._mirrored: Offsets | None = None
        self._is_group_shared = False

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_planner": None}

    # Offsets

    def initialOffset(self) -> Json:  # noqa: N802
        """Where a query without a checkpoint starts."""
        planner = self._planning()
        return to_json(planner.starting(planner.partitions()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit per trigger from the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMaxRows(_NO_MAXIMUM)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the next trigger ends; `start` if it should not run yet.

        Raises:
            DataLossError: a partition went away or became shorter, and failOnDataLoss is on.
        """
        begin = from_json(start)
        # Spark asks once the batch that ended at `start` is finished, the last one before a pause
        # too; `commit` would come with the next batch only.
        self._mirror(begin)
        if self._target is not None:
            latest = dict(self._target)
        else:
            may_be_gone = {tp.topic for tp in begin}
            if not self._options.fail_on_data_loss:
                may_be_gone |= self._selected_topics()
            latest = self._latest(may_be_gone)
        latest = self._checked(begin, latest)
        if isinstance(limit, ReadMaxRows):
            begin |= self._planning().earliest(tp for tp in latest if tp not in begin)
            if self._should_wait(begin, latest):
                return start
            latest = limit_offsets(begin, latest, limit.max_rows)
        if latest != begin:
            self._triggered_ms = self._clock.monotonic_ms()
        return to_json(latest)

    def reportLatestOffset(self) -> Json:  # noqa: N802
        """The end of each partition, from which Spark's progress shows the lag."""
        return to_json(self._latest(self._selected_topics()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the query ends."""
        self._target = self._latest(self._selected_topics())

    def _latest(self, may_be_gone: AbstractSet[str]) -> Offsets:
        """Return the end of each partition.

        Args:
            may_be_gone: topics that are left out if they do not exist. `_checked` reports those
                that the query was reading.
        """
        planner = self._planning()
        try:
            return planner.latest(planner.partitions(may_be_gone))
        except UnknownTopicError:
            # A topic may be deleted between the two questions.
            return planner.latest(planner.partitions(may_be_gone))

    def _selected_topics(self) -> set[str]:
        """Return the topics that the options name."""
        selection = self._options.selection
        return {*selection.topics, *(tp.topic for tp in selection.partitions)}

    def _should_wait(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether there is less than minOffsetsPerTrigger, and maxTriggerDelay is not over."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._target is not None:
            return False
        if sum(max(0, offset - begin[tp]) for tp, offset in latest.items()) >= minimum:
            return False
        now = self._clock.monotonic_ms()
        if self._triggered_ms is None:
            self._triggered_ms = now
        return now - self._triggered_ms < self._options.max_trigger_delay_ms

    def _checked(self, begin: Offsets, latest: Offsets) -> Offsets:
        """`latest`, if nothing that was read before went away, became shorter or another topic."""
        for name in self._planning().recreated():
            self._lost(
                f"Topic {name} was deleted and created again while the query was reading it."
            )
        gone = sorted(tp for tp in begin if tp not in latest)
        if gone:
            names = ", ".join(map(str, gone[:5]))
            self._lost(f"Partitions that the query was reading are gone: {names}.")
        for tp, offset in latest.items():
            if offset < begin.get(tp, 0):
                self._lost(f"{tp} ends at {offset}, but was read up to {begin[tp]} already.")
        return latest

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(what)
        logger.warning("%s Going on, because failOnDataLoss=false", what)

    # Reading

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """One range per task: arithmetic on the two offsets, the same after every restart."""
        begin, until = from_json(start), from_json(end)
        ranges = split_ranges(
            ranges_between(begin, until),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of one range. Stateless: it runs on a worker."""
        from barnabas.spark.task import read_range

        if isinstance(partition.value, OffsetRange):
            yield from read_range(self._options, partition.value, self._schema)

    # Progress

    def _mirror(self, offsets: Offsets) -> None:
        """Show in a consumer group how far the query is, unless it shows that already.

        The checkpoint alone decides where the query goes on.
        """
        if (
            not self._options.mirror_offsets
            or offsets == self._mirrored
            or self._clock.monotonic_ms() < self._mirror_paused_until_ms
        ):
            return
        from barnabas.client.errors import ClientError
        from barnabas.spark.clients import mirroring_client

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
        """Warn once if the group has other offsets than those that this query committed last."""
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
        """The query ended; the process, and its client, end with it."""
        self._planner = None

    def _planning(self) -> Planner:
        if self._planner is None:
            from barnabas.spark.clients import planning_client
            from barnabas.spark.planner import Planner

            self._planner = Planner(planning_client(self._options.client), self._options)
        return self._planner
