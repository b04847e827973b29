"""Validation of configs by type of resource, and the effective values of a topic.

Kafka's ControllerConfigurationValidator and ConfigDef.

All configs that a resource would have are checked together, because a new value may contradict an
unchanged one.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.controller.remote_rules import (
    check_copy_lag,
    check_local_retention,
    check_restore,
    check_tier_stays,
    check_tiered_topic,
    has_remote_tier,
)
from barnabas.controller.result import Refusal
from barnabas.controller.topic_names import problem_of
from barnabas.metadata.client_metrics_configs import (
    CLIENT_METRICS_CONFIGS,
    INTERVAL_MS,
    MATCH,
    ClientMatchError,
    parse_match,
)
from barnabas.metadata.configs_image import (
    ALL_BROKERS,
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from barnabas.metadata.group_configs import GROUP_CONFIGS, SESSIONS, limits_of
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.key import ConfigError, ConfigKey, DynamicMode, Required, without_listener
from barnabas.storage.config import (
    CLEANER_MEMORY,
    CLEANER_THREADS,
    TOPIC_CONFIGS,
    check_cleaner_memory,
    log_config,
    topic_defaults,
)
from barnabas.storage.remote_keys import SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.metadata.image import ClusterImage
    from barnabas.settings.definition import ParsedConfig


_MIN_COMPACTION_LAG = "min.compaction.lag.ms"
_MAX_COMPACTION_LAG = "max.compaction.lag.ms"
_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_UNCLEAN_ELECTION = "unclean.leader.election.enable"
# Broker keys for the defaults of total and local retention, and of the copy lag.
_RETENTION_KEYS = (
    "log.retention.bytes",
    "log.retention.ms",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
)


class ConfigSource(IntEnum):
    """The source of a value; the numbers are Kafka's."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class EffectiveConfig(msgspec.Struct, frozen=True):
    """One key of a topic and its effective value."""

    key: ConfigKey
    # None for a null value, and for a sensitive value.
    value: str | None
    source: ConfigSource


class TopicConfigs:
    """Checks topic configs and computes the effective values."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._defaults = topic_defaults(config.broker)
        self._is_tier_enabled = config.broker.boolean(SYSTEM_ENABLE)
        # Cache: the dynamic configs of this broker and of all brokers, and the topic values that
        # follow. Valid while both mappings are the same objects in the image.
        self._known: (
            tuple[Mapping[str, str], Mapping[str, str], dict[str, EffectiveConfig]] | None
        ) = None

    def check(
        self, configs: Mapping[str, str | None], before: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Raise Refusal for configs that a topic may not have.

        Args:
            configs: the topic's own configs after the change.
            before: the topic's own configs before the change.

        Raises:
            Refusal: INVALID_CONFIG, with key, value and the allowed values.
        """
        for name, value in configs.items():
            key = TOPIC_CONFIGS.get(name)
            if key is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is not a config of a topic")
            if value is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} requires a value")
            try:
                key.parse(value)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
        self._check_together(configs)
        try:
            check_tier_stays(before, configs)
            check_restore(before, configs)
            if has_remote_tier(configs):
                config = log_config(configs, self._defaults)
                check_tiered_topic(config, is_tier_enabled=self._is_tier_enabled)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _check_together(self, configs: Mapping[str, str | None]) -> None:
        """Refuse values that are valid by themselves but contradict each other."""
        lags = []
        for name in (_MIN_COMPACTION_LAG, _MAX_COMPACTION_LAG):
            text = configs.get(name)
            lags.append(TOPIC_CONFIGS.parse_value(name, text) if text else self._defaults.get(name))
        least, most = lags
        if isinstance(least, int) and isinstance(most, int) and least > most:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"{_MIN_COMPACTION_LAG} of {least} is more than {_MAX_COMPACTION_LAG} of {most}",
            )

    def effective(self, image: ClusterImage, own: Mapping[str, str]) -> list[EffectiveConfig]:
        """Return the effective values of a topic that sets `own`; internal ones only if set."""
        return [
            _shown(each.key, own[name], ConfigSource.TOPIC) if name in own else each
            for name, each in self._inherited(image).items()
            if name in own or not each.key.internal
        ]

    def value(self, image: ClusterImage, topic: str, name: str) -> str | None:
        """Return the effective value of one key of an existing topic."""
        text = image.configs.get(TOPIC, topic).get(name, self._inherited(image)[name].value)
        return None if text is None else TOPIC_CONFIGS.key(name).normal(text)

    def min_insync_replicas(self, image: ClusterImage, topic: str) -> int:
        """Return min.insync.replicas of a topic, which may exceed its number of replicas."""
        return int(self.value(image, topic, _MIN_INSYNC_REPLICAS) or "1")

    def has_unclean_election(self, image: ClusterImage, topic: str) -> bool:
        """Return whether an out-of-sync replica may lead the topic's partitions."""
        return self.value(image, topic, _UNCLEAN_ELECTION) == "true"

    def _inherited(self, image: ClusterImage) -> dict[str, EffectiveConfig]:
        """Return the values of a topic without own configs, cached until broker configs change."""
        own = image.configs.get(BROKER, str(self._config.node_id))
        everyone = image.configs.get(BROKER, ALL_BROKERS)
        known = self._known
        if known is None or known[0] is not own or known[1] is not everyone:
            dynamic = (
                (ConfigSource.DYNAMIC_BROKER, own),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER, everyone),
            )
            inherited = {key.name: self._inherit(key, dynamic) for key in TOPIC_CONFIGS}
            known = self._known = (own, everyone, inherited)
        return known[2]

    def _inherit(
        self, key: ConfigKey, dynamic: tuple[tuple[ConfigSource, Mapping[str, str]], ...]
    ) -> EffectiveConfig:
        for source, configs in dynamic:
            for synonym in key.synonyms:
                text = configs.get(synonym.name)
                if text is not None:
                    value = str(synonym.convert(int(text))) if synonym.factor != 1 else text
                    return _shown(key, value, source)
        given = any(synonym.name in self._config.broker.given for synonym in key.synonyms)
        source = ConfigSource.STATIC_BROKER if given else ConfigSource.DEFAULT
        default = self._defaults.get(key.name)
        if default is None and not isinstance(key.default, Required):
            default = key.default
        return _shown(key, None if default is None else key.format(default), source)


def _shown(key: ConfigKey, value: str | None, source: ConfigSource) -> EffectiveConfig:
    return EffectiveConfig(key, None if key.sensitive else value, source)


_PER_ADDRESS = "max.connections.per.ip"
_OVERRIDES = "max.connections.per.ip.overrides"


class ConfigRules:
    """Checks the names and configs of resources."""

    def __init__(self, broker: ParsedConfig, topic_configs: TopicConfigs) -> None:
        self._broker = broker
        self._broker_keys = broker.definition
        self._topic_configs = topic_configs

    def key(self, kind: int, name: str) -> ConfigKey | None:
        """Return the definition of a key for a type of resource; None if it is unknown."""
        definitions = {
            TOPIC: TOPIC_CONFIGS,
            BROKER: self._broker_keys,
            CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
            GROUP: GROUP_CONFIGS,
        }
        definition = definitions.get(kind)
        return None if definition is None else definition.get(name)

    def splittable_key(self, kind: int, name: str) -> ConfigKey | None:
        """Return the definition of a key for append and subtract operations.

        The result is None if the key does not support these operations.
        """
        # Kafka supports neither operation for client metrics subscriptions.
        return None if kind == CLIENT_METRICS else self.key(kind, name)

    def default(self, kind: int, key: ConfigKey) -> str | None:
        """Return the static or default value of a key; topics also inherit from brokers."""
        if kind == BROKER:
            return self._broker.text(key.name)
        return None if isinstance(key.default, Required) else key.format(key.default)

    def check(
        self,
        image: ClusterImage,
        resource: tuple[int, str],
        changes: Mapping[str, str | None],
        merged: Mapping[str, str],
    ) -> None:
        """Raise Refusal for a change that the resource may not have.

        Args:
            image: the cluster before the change.
            resource: type and name.
            changes: the keys that change; None for removed keys.
            merged: all configs of the resource after the change.

        Raises:
            Refusal: INVALID_CONFIG, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION or
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        kind, name = resource
        if kind == TOPIC:
            _check_topic_name(name)
            self._topic_configs.check(merged, image.configs.get(TOPIC, name))
            if image.topics.by_name(name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refusal(error, error.message)
        elif kind == BROKER:
            check_broker_name(name)
            self._check_broker(name, changes)
            self._check_addresses(merged)
            self._check_cleaner(changes, merged)
            self._check_local_retention(changes, merged)
            _check_minimum(image, name, changes)
        elif kind == CLIENT_METRICS:
            _check_client_metrics(name, merged)
        else:
            self._check_group(name, merged)

    def _check_group(self, name: str, configs: Mapping[str, str]) -> None:
        """Refuse unknown configs, invalid values, and values outside of the broker's limits."""
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "groups have no cluster-wide configs")
        for key_name, value in configs.items():
            key = GROUP_CONFIGS.get(key_name)
            if key is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{key_name} is not a config of a group")
            _parse(key, value, ErrorCode.INVALID_CONFIG)
        for key_name, value in configs.items():
            if GROUP_CONFIGS.key(key_name).synonyms:
                self._check_limits(key_name, value)
        for session, heartbeat in SESSIONS:
            if session not in configs and heartbeat not in configs:
                continue
            session_ms = int(configs.get(session, self._broker.integer(f"group.{session}")))
            heartbeat_ms = int(configs.get(heartbeat, self._broker.integer(f"group.{heartbeat}")))
            if session_ms <= heartbeat_ms:
                raise Refusal(
                    ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}"
                )

    def _check_limits(self, key_name: str, value: str) -> None:
        limits = limits_of(key_name)
        lowest, highest = (
            None if each is None else self._broker.integer(each)
            for each in (limits.lowest, limits.highest)
        )
        if (lowest is None or int(value) >= lowest) and (highest is None or int(value) <= highest):
            return
        if lowest is None:
            allowed = f"less than or equal to {highest}"
        elif highest is None:
            allowed = f"greater than or equal to {lowest}"
        else:
            allowed = f"in the range {lowest} to {highest} inclusive."
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{key_name} must be {allowed}")

    def _check_broker(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Refuse read-only keys, per-broker keys for all brokers, and invalid values."""
        for key_name, value in changes.items():
            key = self._broker_keys.get(without_listener(key_name))
            if key is None or value is None:
                # Kafka accepts unknown keys, which plug-ins may use. A removal is always valid.
                continue
            if key.mode is DynamicMode.READ_ONLY:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{key_name} cannot change while the broker runs; set it in the "
                    "properties file and restart the broker",
                )
            if key.mode is DynamicMode.PER_BROKER and name == ALL_BROKERS:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST, f"{key_name} can only be set on one broker"
                )
            _parse(key, value, ErrorCode.INVALID_REQUEST)

    def _check_cleaner(self, changes: Mapping[str, str | None], merged: Mapping[str, str]) -> None:
        """Refuse less memory than the log cleaner needs."""
        if changes.keys().isdisjoint((CLEANER_MEMORY, CLEANER_THREADS)):
            return
        size, threads = (
            merged.get(name, self._broker.values[name])
            for name in (CLEANER_MEMORY, CLEANER_THREADS)
        )
        assert isinstance(size, int | str), size
        assert isinstance(threads, int | str), threads
        try:
            check_cleaner_memory(int(size), int(threads))
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_local_retention(
        self, changes: Mapping[str, str | None], merged: Mapping[str, str]
    ) -> None:
        """Refuse defaults of local retention and copy lag that exceed those of the wider value."""
        if changes.keys().isdisjoint(_RETENTION_KEYS):
            return
        own = {name: merged[name] for name in _RETENTION_KEYS if name in merged}
        try:
            values = {name: self._broker_keys.parse_value(name, text) for name, text in own.items()}
            broker = replace(self._broker, values={**self._broker.values, **values})
            config = log_config({}, topic_defaults(broker))
            check_local_retention(config, "log.")
            check_copy_lag(config, "log.")
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _check_addresses(self, merged: Mapping[str, str]) -> None:
        """Refuse settings that accept no connection from any address."""
        per_address = merged.get(_PER_ADDRESS, self._broker.values.get(_PER_ADDRESS))
        overrides = merged.get(_OVERRIDES, self._broker.values.get(_OVERRIDES))
        if per_address is not None and int(str(per_address)) == 0 and not overrides:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"{_PER_ADDRESS} can be 0 only if {_OVERRIDES} is set"
            )


def check_kind(kind: int) -> None:
    """Raise Refusal for a type of resource that has no configs.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    if kind not in (TOPIC, BROKER, CLIENT_METRICS, GROUP):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configs")


def check_broker_name(name: str) -> None:
    """Raise Refusal for a name that is no broker id; the empty name stands for all brokers.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    if name != ALL_BROKERS and not (name.isascii() and name.isdigit()):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"expected a broker id, not {name!r}")


def _check_topic_name(name: str) -> None:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "topics have no cluster-wide configs")
    problem = problem_of(name)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _check_minimum(image: ClusterImage, name: str, changes: Mapping[str, str | None]) -> None:
    """Refuse min.insync.replicas of a single broker, and its removal, while KIP-966 is enabled."""
    if not image.features.is_elr_enabled or _MIN_INSYNC_REPLICAS not in changes:
        return
    if name != ALL_BROKERS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"while eligible leader replicas are enabled, {_MIN_INSYNC_REPLICAS} cannot "
            "be set for one broker, only for all brokers or a topic",
        )
    if changes[_MIN_INSYNC_REPLICAS] is None:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"while eligible leader replicas are enabled, {_MIN_INSYNC_REPLICAS} of all "
            "brokers cannot be removed",
        )


def _check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a subscription requires a name")
    for key_name, value in configs.items():
        key = CLIENT_METRICS_CONFIGS.get(key_name)
        if key is None:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"{key_name} is not a config of a subscription"
            )
        try:
            parsed = key.parse(value)
        except ConfigError as error:
            out_of_range = key_name == INTERVAL_MS and value.strip().lstrip("-").isdigit()
            code = ErrorCode.INVALID_REQUEST if out_of_range else ErrorCode.INVALID_CONFIG
            raise Refusal(code, str(error)) from error
        if key_name == MATCH and isinstance(parsed, list):
            try:
                parse_match(parsed)
            except ClientMatchError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error


def _parse(key: ConfigKey, value: str, error_code: ErrorCode) -> None:
    try:
        key.parse(value)
    except ConfigError as error:
        raise Refusal(error_code, str(error)) from error
