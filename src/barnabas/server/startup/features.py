"""Feature levels that this node supports, and their check against a data directory (KIP-584).

A listed level is fully implemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from barnabas.protocol.errors import ErrorCode
from barnabas.raft.log.metadata_log import finalized_features
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.runtime.disk import Disk


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


FEATURES_TOOL = "kafka-features.sh --bootstrap-server HOST:PORT"


class UnsupportedFeaturesError(StorageError):
    """A data directory has feature levels that this node does not support."""

    error_code = ErrorCode.UNSUPPORTED_VERSION


class UnsupportedLevel(NamedTuple):
    """A level that this node does not support, and those that it does."""

    name: str
    level: int
    lowest: int
    highest: int

    @property
    def change(self) -> tuple[str, int]:
        """The change that makes it supported: "upgrade" or "downgrade", and the level."""
        return (
            ("downgrade", self.highest) if self.level > self.highest else ("upgrade", self.lowest)
        )


def unsupported_levels(levels: Mapping[str, int]) -> list[UnsupportedLevel]:
    """Return those finalized levels, by name, that this node does not support."""
    found = []
    for name, level in sorted(levels.items()):
        lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
        if not lowest <= level <= highest:
            found.append(UnsupportedLevel(name, level, lowest, highest))
    return found


def check_features(disk: Disk, metadata_path: str) -> None:
    """Check the feature levels of a data directory. Nothing in it is changed.

    Args:
        disk: the disk with the directory.
        metadata_path: data directory of the metadata log. It may be empty.

    Raises:
        UnsupportedFeaturesError: a level is not supported. The message says what to do.
        OSError: the log cannot be read.
    """
    problems: list[str] = []
    arguments: dict[str, list[str]] = {}
    for each in unsupported_levels(finalized_features(disk, metadata_path)):
        supported = f"{each.lowest} to {each.highest}" if each.highest else "none"
        problems.append(f"{each.name} {each.level} (this node knows {supported})")
        direction, to = each.change
        arguments.setdefault(direction, []).append(f"--feature {each.name}={to}")
    if problems:
        commands = "` and `".join(
            " ".join([FEATURES_TOOL, direction, *features])
            for direction, features in arguments.items()
        )
        raise UnsupportedFeaturesError(
            f"{metadata_path} has feature levels that this node does not support: "
            f"{', '.join(problems)}. Nothing was changed. Start the Apache Kafka that wrote it, "
            f"run `{commands}`, stop it, then start this node again; see docs/interop.md"
        )
