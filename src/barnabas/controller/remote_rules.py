"""Rules for topics with a remote tier (KIP-405, KIP-950, KIP-1241; Kafka's LogConfig).

The checks run in Kafka's order. Each looks at effective values, because a topic's value can
contradict one that it inherits from the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.key import ConfigError
from barnabas.storage.config import (
    CLEANUP_POLICY,
    REMOTE_COPY_DISABLE,
    REMOTE_DELETE_ON_DISABLE,
    REMOTE_STORAGE_ENABLE,
    RESTORE,
    RESTORE_COPYING,
    RESTORE_NONE,
    SAME_AS_TOTAL,
)
from barnabas.storage.remote_keys import SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.storage.config import LogConfig

_UNLIMITED = -1


def has_remote_tier(configs: Mapping[str, str | None]) -> bool:
    """Return whether a topic with these configs asks for a remote tier."""
    return _is_true(configs, REMOTE_STORAGE_ENABLE)


def check_tiered_topic(config: LogConfig, *, is_tier_enabled: bool) -> None:
    """Check the configs of a topic with remote.storage.enable=true.

    Args:
        config: the effective values of the topic.
        is_tier_enabled: value of remote.log.storage.system.enable.

    Raises:
        ConfigError: a value is not allowed.
    """
    assert config.remote_storage_enable
    if not is_tier_enabled:
        words = f"false, because this cluster has {SYSTEM_ENABLE}=false"
        raise ConfigError(REMOTE_STORAGE_ENABLE, "true", words)
    if config.cleanup_policy not in ((), ("delete",)):
        words = f"delete or an empty list, because the topic has {REMOTE_STORAGE_ENABLE}=true"
        raise ConfigError(CLEANUP_POLICY, ",".join(config.cleanup_policy), words)
    check_local_retention(config)
    check_copy_lag(config)
    if config.remote_copy_disable:
        _check_retention_without_copies(config)


def check_local_retention(config: LogConfig, prefix: str = "") -> None:
    """Check that local retention does not exceed total retention.

    Args:
        config: the effective values of a topic, or of topics without own configs.
        prefix: `log.` for the names of the broker's keys.

    Raises:
        ConfigError: it does.
    """
    for name, local, total in _retentions(config):
        if total <= _UNLIMITED or local == SAME_AS_TOTAL or 0 <= local <= total:
            continue
        words = f"{SAME_AS_TOTAL}, or 0 to {total}, because {prefix}{name} is {total}"
        raise ConfigError(f"{prefix}local.{name}", str(local), words)


def check_copy_lag(config: LogConfig, prefix: str = "") -> None:
    """Check that a segment can be copied before local retention deletes it.

    Args:
        config: the effective values of a topic, or of topics without own configs.
        prefix: `log.` for the names of the broker's keys.

    Raises:
        ConfigError: the copy lag exceeds local retention.
    """
    for unit, lag, local in (
        ("bytes", config.remote_copy_lag_bytes, config.effective_local_retention_bytes),
        ("ms", config.remote_copy_lag_ms, config.effective_local_retention_ms),
    ):
        if 0 < local < lag:
            words = f"at most {local}, the effective value of {prefix}local.retention.{unit}"
            raise ConfigError(f"{prefix}remote.copy.lag.{unit}", str(lag), words)


def check_tier_stays(before: Mapping[str, str], after: Mapping[str, str | None]) -> None:
    """Check that a topic keeps its remote tier, unless it says to delete what is there (KIP-950).

    Args:
        before: the topic's own configs before the change.
        after: the topic's own configs after the change.

    Raises:
        Refusal: INVALID_CONFIG, with Kafka's words.
    """
    if not has_remote_tier(before) or has_remote_tier(after):
        return
    if not _is_true(after, REMOTE_DELETE_ON_DISABLE):
        words = (
            "It is invalid to disable remote storage without deleting remote data. If you want to"
            " keep the remote data and turn to read only, please set"
            f" `{REMOTE_STORAGE_ENABLE}=true,{REMOTE_COPY_DISABLE}=true`. If you want to disable"
            " remote storage and delete all remote data, please set"
            f" `{REMOTE_STORAGE_ENABLE}=false,{REMOTE_DELETE_ON_DISABLE}=true`."
        )
        raise Refusal(ErrorCode.INVALID_CONFIG, words)


def check_restore(before: Mapping[str, str], after: Mapping[str, str | None]) -> None:
    """Check that only a new tiered topic begins to be restored.

    Args:
        before: the topic's own configs before the change; empty for a new topic.
        after: the topic's own configs after the change.

    Raises:
        ConfigError: the topic would adopt segments, or refuse producers, by accident.
    """
    phase = after.get(RESTORE) or RESTORE_NONE
    if phase == RESTORE_NONE:
        return
    if not has_remote_tier(after):
        raise ConfigError(
            RESTORE, phase, f"{RESTORE_NONE}, because {REMOTE_STORAGE_ENABLE} is not true"
        )
    is_restored = before.get(RESTORE, RESTORE_NONE) != RESTORE_NONE
    if not is_restored and (before or phase != RESTORE_COPYING):
        words = f"{RESTORE_NONE}: the topic is not new. Use barnabas remote restore"
        raise ConfigError(RESTORE, phase, words)


def check_metadata_is_unused(image: ClusterImage) -> None:
    """Check that no topic needs the topic with the metadata of remote segments.

    Raises:
        Refusal: a topic has a remote tier. Without the metadata, its records could not be read.
    """
    for name, configs in image.configs.of_type(TOPIC).items():
        if has_remote_tier(configs):
            words = (
                f"the topic {name} has {REMOTE_STORAGE_ENABLE}=true, and its records could not be"
                " read any more. Delete all topics with a remote tier first"
            )
            raise Refusal(ErrorCode.POLICY_VIOLATION, words)


def _is_true(configs: Mapping[str, str | None], name: str) -> bool:
    return (configs.get(name) or "").strip().lower() == "true"


def _retentions(config: LogConfig) -> tuple[tuple[str, int, int], ...]:
    """Return name, local value and total value of each kind of retention."""
    return (
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
        ("retention.ms", config.local_retention_ms, config.retention_ms),
    )


def _check_retention_without_copies(config: LogConfig) -> None:
    """Refuse a local retention of its own if segments are not copied."""
    for name, local, total in _retentions(config):
        if local not in (SAME_AS_TOTAL, total):
            words = f"{SAME_AS_TOTAL} or {total} as {name}, because {REMOTE_COPY_DISABLE} is true"
            raise ConfigError(f"local.{name}", str(local), words)
