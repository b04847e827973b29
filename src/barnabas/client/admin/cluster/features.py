"""Updates the finalized feature levels of the cluster (KIP-584, KIP-778)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.schema import Message

__all__ = ["UpgradeType", "update_features"]

_KIND_FROM = 1


class UpgradeType(enum.IntEnum):
    """Which changes of a level are allowed, with Kafka's numbers."""

    UPGRADE = 1
    # Only downgrades without loss of metadata.
    SAFE_DOWNGRADE = 2
    # Also downgrades that lose metadata.
    UNSAFE_DOWNGRADE = 3


def update_features(
    levels: Mapping[str, int], kind: UpgradeType, timeout_ms: int, *, validate_only: bool
) -> AdminCall[bool]:
    """Set these levels, either all or none; a level of 0 removes the feature."""

    def build(version: int) -> Message:
        request = UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=[])
        for name, level in levels.items():
            update = FeatureUpdateKey(feature=name, max_version_level=level)
            if version >= _KIND_FROM:
                update.upgrade_type = int(kind)
            else:
                update.allow_downgrade = kind is not UpgradeType.UPGRADE
            request.feature_updates.append(update)
        request.validate_only = validate_only
        return request

    def read(response: Message) -> bool:
        assert isinstance(response, UpdateFeaturesResponse)
        raise_error(response.error_code, "update of features", response.error_message)
        for result in response.results:
            raise_error(result.error_code, f"feature {result.feature}", result.error_message)
        return True

    return AdminCall(ApiKey.UPDATE_FEATURES, build, read)
