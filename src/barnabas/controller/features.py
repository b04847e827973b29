"""Raising and lowering the cluster's feature levels (UpdateFeatures API 57; KIP-584, KIP-778)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    changes_metadata,
    has_eligible_leader_replicas,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.records.topics import ConfigRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import SupportedLevels
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.nodes import FeatureUpdateKey


_MIN_INSYNC_REPLICAS = "min.insync.replicas"


class UpgradeType(IntEnum):
    """The allowed kind of a level change; the numbers are Kafka's."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class KraftVersion(Protocol):
    """The quorum's own feature level, which is in the log's control records (KIP-853)."""

    @property
    def kraft_version(self) -> int:
        """The current level."""
        ...

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Raise the level; returns the reason of a refusal, or None."""
        ...


class FeatureControl:
    """Handles changes of feature levels, and returns the resulting records."""

    def __init__(
        self,
        config: ControllerConfig,
        supported: Mapping[str, SupportedLevels],
        quorum: KraftVersion | None = None,
    ) -> None:
        self._config = config
        # None if the quorum is not accessible; kraft.version is then 0 and cannot change.
        self._quorum = quorum
        # Levels that this controller supports; empty if only the brokers' levels matter.
        self._supported = supported

    def update(
        self, view: ControllerView, request: UpdateFeaturesRequest
    ) -> ControllerResult[UpdateFeaturesResponse]:
        """Change all named features or none of them, or only validate the request."""
        image = view.image
        # As in Kafka, the last update of a feature counts.
        updates = {each.feature: each for each in request.feature_updates}
        records: list[VersionedRecord] = []
        try:
            for update in updates.values():
                records += self._update_one(image, update, updates)
        except Refusal as refusal:
            return ControllerResult([], refuse_update_features(request, refusal))
        results = [
            UpdatableFeatureResult(
                feature=each.feature, error_code=ErrorCode.NONE, error_message=None
            )
            for each in request.feature_updates
        ]
        response = UpdateFeaturesResponse(
            error_code=ErrorCode.NONE, error_message=None, results=results
        )
        if request.validate_only:
            return ControllerResult([], response)
        return ControllerResult(records, response, finish=lambda: self._finish(request, response))

    def _finish(
        self, request: UpdateFeaturesRequest, response: UpdateFeaturesResponse
    ) -> UpdateFeaturesResponse:
        """Raise kraft.version after the commit of the other records.

        Returns:
            The final response to the request.
        """
        for update in request.feature_updates:
            if update.feature == KRAFT_VERSION:
                problem = self._raise_kraft_version(update.max_version_level, validate_only=False)
                if problem is not None:
                    refused = _invalid(KRAFT_VERSION, update.max_version_level, problem)
                    return refuse_update_features(request, refused)
        return response

    def _raise_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        if self._quorum is None:
            return "the voters of this quorum are static"
        return self._quorum.upgrade_kraft_version(level, validate_only=validate_only)

    def _current(self, image: ClusterImage, name: str) -> int:
        if name == KRAFT_VERSION:
            return 0 if self._quorum is None else self._quorum.kraft_version
        return _current(image, name)

    def _update_one(
        self, image: ClusterImage, update: FeatureUpdateKey, updates: Mapping[str, FeatureUpdateKey]
    ) -> list[VersionedRecord]:
        name, level = update.feature, update.max_version_level
        if update.upgrade_type not in tuple(UpgradeType):
            raise _invalid(name, level, f"unknown upgrade type {update.upgrade_type}")
        if level < 0:
            raise _invalid(name, level, "a level must be at least 0")
        self._check_supported(image, name, level)
        current = self._current(image, name)
        is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
        if level < current and is_upgrade:
            raise _invalid(
                name, level, f"the request is an upgrade, but the current level is {current}"
            )
        if level > current and not is_upgrade:
            raise _invalid(
                name, level, f"the request is a downgrade, but the current level is {current}"
            )
        if level == current:
            return []
        if name == METADATA_VERSION:
            _check_metadata_version(current, level, update.upgrade_type)
        elif name == KRAFT_VERSION:
            # `finish` raises this level after the commit. No record of the image holds it.
            problem = self._raise_kraft_version(level, validate_only=True)
            if problem is not None:
                raise _invalid(name, level, problem)
            return []
        records: list[VersionedRecord] = []
        if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > 0:
            wanted = updates.get(METADATA_VERSION)
            metadata_version = (
                image.features.metadata_version if wanted is None else wanted.max_version_level
            )
            if not has_eligible_leader_replicas(metadata_version):
                raise _invalid(
                    name, level, f"metadata.version {metadata_version} is too low for this level"
                )
            records += self._pinned_minimum(image)
        records.append((FeatureLevelRecord(name=name, feature_level=level), 0))
        return records

    def _check_supported(self, image: ClusterImage, name: str, level: int) -> None:
        """Refuse a level that a registered controller or broker does not support."""
        nodes = [("this controller", self._supported)] if self._supported else []
        nodes += [
            (f"controller {other.id}", other.supported_features)
            for other in image.controllers.values()
            if other.id != self._config.node_id
        ]
        nodes += [
            (f"broker {broker.id}", broker.supported_features) for broker in image.brokers.values()
        ]
        for node, supported in nodes:
            levels = supported.get(name)
            if levels is None:
                raise _invalid(name, level, f"{node} does not support the feature")
            if not levels.min_level <= level <= levels.max_level:
                raise _invalid(
                    name, level, f"{node} supports {levels.min_level} to {levels.max_level}"
                )

    def _pinned_minimum(self, image: ClusterImage) -> list[VersionedRecord]:
        """Return records that set min.insync.replicas for all brokers, and for no single broker.

        KIP-966 requires this.
        """
        records: list[VersionedRecord] = [
            (
                ConfigRecord(
                    resource_type=BROKER,
                    resource_name=broker,
                    name=_MIN_INSYNC_REPLICAS,
                    value=None,
                ),
                0,
            )
            for resource_type, broker, configs in image.configs
            if resource_type == BROKER and broker != ALL_BROKERS and _MIN_INSYNC_REPLICAS in configs
        ]
        if _MIN_INSYNC_REPLICAS not in image.configs.get(BROKER, ALL_BROKERS):
            pinned = ConfigRecord(
                resource_type=BROKER,
                resource_name=ALL_BROKERS,
                name=_MIN_INSYNC_REPLICAS,
                value=self._config.broker.text(_MIN_INSYNC_REPLICAS),
            )
            records.append((pinned, 0))
        return records


def _current(image: ClusterImage, name: str) -> int:
    if name == METADATA_VERSION:
        return image.features.metadata_version
    return image.features.finalized.get(name, 0)


def _check_metadata_version(current: int, level: int, upgrade_type: int) -> None:
    """Refuse a lower metadata.version that cannot represent the current records."""
    if level > current or not changes_metadata(level, current):
        return
    if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
        raise _invalid(METADATA_VERSION, level, "an unsafe downgrade is not supported")
    raise _invalid(METADATA_VERSION, level, f"metadata of level {current} could be lost")


def _invalid(name: str, level: int, reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be at level {level}: {reason}")


def refuse_update_features(
    _request: UpdateFeaturesRequest, error: Refusal
) -> UpdateFeaturesResponse:
    """Return the error response to an UpdateFeatures request."""
    return UpdateFeaturesResponse(
        error_code=error.error_code,
        error_message=f"no feature was updated: {error.message}",
        results=[],
    )
