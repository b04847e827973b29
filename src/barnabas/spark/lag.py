"""Lag of a query's sources, computed from the progress that Spark reports.

Spark 4.2 does not accept metrics from Python sources. The names are those of the metrics of Spark's
Kafka connector.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.topics.offsets import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Lag of one source of a query behind the ends of its partitions, in offsets."""

    # By partition: its end offset minus the end of the last batch; never negative.
    behind_latest: Mapping[TopicPartition, int]

    @property
    def min_offsets_behind_latest(self) -> int:
        """The smallest lag of a partition; 0 without partitions."""
        return min(self.behind_latest.values(), default=0)

    @property
    def max_offsets_behind_latest(self) -> int:
        """The largest lag of a partition; 0 without partitions."""
        return max(self.behind_latest.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        """The average lag of the partitions; 0 without partitions."""
        count = len(self.behind_latest)
        return sum(self.behind_latest.values()) / count if count else 0.0


def source_lags(progress: Any) -> list[SourceLag]:
    """Return the lag of each source, in the order of the progress.

    Args:
        progress: `query.lastProgress`, one of `query.recentProgress`, or `event.progress` of a
            listener; None gives no sources.
    """
    if progress is None:
        return []
    lags = []
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        latest, end = _offsets(source, "latestOffset"), _offsets(source, "endOffset")
        lags.append(
            SourceLag({tp: max(0, offset - end.get(tp, 0)) for tp, offset in latest.items()})
        )
    return lags


def _offsets(source: Any, name: str) -> dict[TopicPartition, int]:
    given = source[name] if isinstance(source, dict) else getattr(source, name)
    found = json.loads(given) if isinstance(given, str) else given
    # Sources of other formats have other offsets: `{"logOffset": 1}` of files.
    is_of_topics = isinstance(found, dict) and all(isinstance(v, dict) for v in found.values())
    return from_json(found) if is_of_topics else {}
