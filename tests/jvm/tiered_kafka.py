"""Apache Kafka with a remote store: its LocalTieredStorage, in a directory.

The directory has one folder per partition, `TOPIC-PARTITION-TOPIC_ID`, and in it the files of each
segment, `OFFSET-SEGMENT_ID` with the suffixes `.log`, `.index`, `.timeindex`, `.txnindex`,
`.snapshot` and `.leader_epoch_checkpoint`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

JARS = "kafka-tiered"
SHIM = Path(__file__).parent / JARS / "LogContext.java"
STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_METADATA = "rlmm.config.remote.log.metadata.topic"

# For both brokers: intervals that are short enough for a test.
TIERED_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    f"{_METADATA}.replication.factor": "1",
    f"{_METADATA}.num.partitions": "3",
    f"{_METADATA}.min.isr": "1",
    "remote.log.manager.task.interval.ms": "500",
    "remote.fetch.max.wait.ms": "5000",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
}


class TieredKafka(KafkaProcess):
    """One Apache Kafka with tiered storage.

    Args:
        directory: contains data, settings, the log file, and the remote store.
        settings: more broker configs.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.store = directory / "remote" / "kafka-tiered-storage"
        own = {
            **TIERED_SETTINGS,
            "remote.log.storage.manager.class.name": STORAGE,
            "rsm.config.dir": str(directory / "remote"),
        }
        super().__init__(directory, own | dict(settings or {}), JARS, source=SHIM)

    def stored(self, topic: str, partition: int = 0, suffix: str = "log") -> list[Path]:
        """Return the files of a partition's segments with a suffix, by offset."""
        return sorted(self.store.glob(f"{topic}-{partition}-*/*.{suffix}"))
