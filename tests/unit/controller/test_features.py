"""Feature levels: validation of upgrades and downgrades, and levels that brokers do not support."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.controller.features import FeatureControl, UpgradeType
from barnabas.metadata.broker_registration import SupportedLevels
from barnabas.metadata.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.records.nodes import FeatureLevelRecord
from unit.controller.parts import applied, config_of, kinds, view_of
from unit.metadata.clusters import config, image_of

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage

UPGRADE, SAFE, UNSAFE = UpgradeType
MV, ELR = "metadata.version", "eligible.leader.replicas.version"
SUPPORTED = {MV: SupportedLevels(7, 33), ELR: SupportedLevels(0, 1)}


def request(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )


def image_at(metadata_version: int, elr: int = 0) -> ClusterImage:
    records = [FeatureLevelRecord(name=MV, feature_level=metadata_version)]
    if elr:
        records.append(FeatureLevelRecord(name=ELR, feature_level=elr))
    return image_of(*records)


CONTROL = FeatureControl(config_of(), SUPPORTED)


@pytest.mark.parametrize(
    ("level", "update", "error"),
    [
        (33, (MV, 33, UPGRADE), ErrorCode.NONE),
        (32, (MV, 33, UPGRADE), ErrorCode.NONE),
        (33, (MV, 34, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, 6, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, -1, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, 32, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, 32, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, 32, UNSAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (31, (MV, 30, SAFE), ErrorCode.NONE),
        (29, (MV, 23, SAFE), ErrorCode.NONE),
        (29, (MV, 22, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (29, (MV, 30, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (MV, 33, 0), ErrorCode.INVALID_UPDATE_VERSION),
        (33, ("no.such.feature", 0, SAFE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (ELR, 1, UPGRADE), ErrorCode.NONE),
        (22, (ELR, 1, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
        (33, (ELR, 2, UPGRADE), ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_a_level_is_changed_or_refused(
    level: int, update: tuple[str, int, int], error: ErrorCode
) -> None:
    result = CONTROL.update(view_of(image_at(level)), request(update))
    assert result.response.error_code == error
    if not error:
        after = applied(image_at(level), result.records)
        assert after.features.finalized[update[0]] == update[1]


def test_one_invalid_feature_leaves_all_features_unchanged() -> None:
    wanted = request((ELR, 1, UPGRADE), ("no.such.feature", 1, UPGRADE))
    result = CONTROL.update(view_of(image_at(33)), wanted)
    assert result.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert result.records == [] == result.response.results


def test_validate_only_writes_no_record() -> None:
    result = CONTROL.update(view_of(image_at(32)), request((MV, 33, UPGRADE), validate_only=True))
    assert (result.response.error_code, result.records) == (ErrorCode.NONE, [])
    assert [each.feature for each in result.response.results] == [MV]


def test_enabling_eligible_leader_replicas_sets_min_insync_replicas() -> None:
    image = image_of(config(BROKER, "1", "min.insync.replicas", "2"), base=image_at(33))
    result = CONTROL.update(view_of(image), request((ELR, 1, UPGRADE)))
    assert kinds(result.records) == [("ConfigRecord", 0)] * 2 + [("FeatureLevelRecord", 0)]
    after = applied(image, result.records)
    assert dict(after.configs.get(BROKER, "1")) == {}
    assert dict(after.configs.get(BROKER, "")) == {"min.insync.replicas": "1"}


def test_levels_can_be_lowered_again() -> None:
    result = CONTROL.update(view_of(image_at(33, elr=1)), request((ELR, 0, SAFE)))
    assert result.response.error_code == ErrorCode.NONE
    assert ELR not in applied(image_at(33, elr=1), result.records).features.finalized


class Quorum:
    """The level of kraft.version, and the reason why it cannot be raised."""

    def __init__(self, problem: str | None = None) -> None:
        self.kraft_version = 0
        self.problem = problem

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        if self.problem is None and not validate_only:
            self.kraft_version = level
        return self.problem


KRAFT = "kraft.version"


def raise_kraft_version(quorum: Quorum, level: int, *, validate_only: bool = False) -> ErrorCode:
    control = FeatureControl(config_of(), SUPPORTED | {KRAFT: SupportedLevels(0, 1)}, quorum)
    asked = request((KRAFT, level, UPGRADE), validate_only=validate_only)
    result = control.update(view_of(image_at(33)), asked)
    assert result.records == []
    response = result.response if result.finish is None else result.finish()
    return ErrorCode(response.error_code)


def test_kraft_version_is_raised_by_the_quorum() -> None:
    quorum = Quorum()
    assert raise_kraft_version(quorum, 1, validate_only=True) is ErrorCode.NONE
    assert quorum.kraft_version == 0
    assert raise_kraft_version(quorum, 1) is ErrorCode.NONE
    assert quorum.kraft_version == 1
    assert raise_kraft_version(quorum, 0) is ErrorCode.INVALID_UPDATE_VERSION


def test_the_quorum_reports_why_kraft_version_cannot_be_raised() -> None:
    quorum = Quorum("voter 2 has not said its directory id")
    assert raise_kraft_version(quorum, 1) is ErrorCode.INVALID_UPDATE_VERSION
    assert quorum.kraft_version == 0
