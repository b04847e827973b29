"""Feature levels with which Apache Kafka formats what Barnabas can open."""

from __future__ import annotations

from typing import Final

from barnabas.server.startup.features import SUPPORTED_FEATURES

# Apache Kafka 4.4 enables these in a new cluster.
_ENABLED_BY_KAFKA: Final = ("group.version", "share.version", "streams.version")
# Barnabas refuses directories in which one of these is enabled.
UNSUPPORTED: Final = tuple(name for name in _ENABLED_BY_KAFKA if name not in SUPPORTED_FEATURES)
FEATURES: Final = dict.fromkeys(UNSUPPORTED, 0)
# The same for `kafka-storage format`.
FORMAT_OPTIONS: Final = tuple(f"--feature={name}=0" for name in UNSUPPORTED)
