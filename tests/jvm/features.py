"""Feature levels with which Apache Kafka formats what Barnabas can open."""

from __future__ import annotations

from typing import Final

from barnabas.server.startup.features import SUPPORTED_FEATURES

# Levels of Apache Kafka 4.4 in a new cluster, of features that Barnabas may not have.
_KAFKAS: Final = {"group.version": 1, "share.version": 2, "streams.version": 1}
# The highest levels that Barnabas can open, where they are lower.
FEATURES: Final = {
    name: SUPPORTED_FEATURES[name].max_level if name in SUPPORTED_FEATURES else 0
    for name, level in _KAFKAS.items()
    if name not in SUPPORTED_FEATURES or SUPPORTED_FEATURES[name].max_level < level
}
# The same for `kafka-storage format`.
FORMAT_OPTIONS: Final = tuple(f"--feature={name}={level}" for name, level in FEATURES.items())
