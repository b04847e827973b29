"""Status codes of StreamsGroupHeartbeat responses (KIP-1071)."""

from __future__ import annotations

from enum import IntEnum


class StreamsStatus(IntEnum):
    """Why a member of a streams group has no tasks, or what it should do."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
