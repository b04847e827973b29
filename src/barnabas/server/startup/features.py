"""Feature levels that this node supports (KIP-584). A listed level is fully implemented."""

from __future__ import annotations

from barnabas.metadata.broker_registration import SupportedLevels
from barnabas.metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_MAX,
)

SUPPORTED_FEATURES: dict[str, SupportedLevels] = {
    METADATA_VERSION: SupportedLevels(METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: SupportedLevels(0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: SupportedLevels(0, 1),
    TRANSACTION_VERSION: SupportedLevels(0, TRANSACTION_VERSION_MAX),
    GROUP_VERSION: SupportedLevels(0, 1),
    SHARE_VERSION: SupportedLevels(0, 2),
    STREAMS_VERSION: SupportedLevels(0, 1),
}

# Feature levels of new clusters.
BOOTSTRAP_FEATURES: dict[str, int] = {
    METADATA_VERSION: METADATA_VERSION_MAX,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    TRANSACTION_VERSION: TRANSACTION_VERSION_MAX,
    GROUP_VERSION: 1,
    SHARE_VERSION: 2,
    STREAMS_VERSION: 1,
}
