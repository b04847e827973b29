"""Facts about a log that are known before it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition


class LogOpening(msgspec.Struct, frozen=True):
    """Facts about a log before it is opened."""

    topic_partition: TopicPartition
    # 16 bytes; None if unknown, then `partition.metadata` supplies it if present.
    topic_id: bytes | None = None
    # From `recovery-point-offset-checkpoint`; everything below it was synced.
    recovery_point: int = 0
    # From `log-start-offset-checkpoint`.
    log_start_offset: int = 0
    # From `replication-offset-checkpoint`; limited to [log start, log end] on opening.
    high_watermark: int = 0
    # Whether the `.kafka_cleanshutdown` marker existed, so that no recovery is needed.
    clean_shutdown: bool = False
    producer_id_expiration_ms: int = 86_400_000
    # transaction.partition.verification.enable.
    verifies_transactions: bool = False
