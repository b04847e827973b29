"""Validation of configs by type of resource (Kafka's ControllerConfigurationValidator).

All configs that a resource would have are checked together, because a new value may contradict an
unchanged one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from barnabas.settings.key import ConfigError, DynamicMode, Required, without_listener
from barnabas.storage.config import (
    CLEANER_MEMORY,
    CLEANER_THREADS,
    TOPIC_CONFIGS,
    check_cleaner_memory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.configs.topic_configs import TopicConfigs
    from barnabas.metadata.image import ClusterImage
    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigKey

_MIN_INSYNC_REPLICAS = "min.insync.replicas"
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
            self._topic_configs.check(merged)
            if image.topics.by_name(name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refusal(error, error.message)
        elif kind == BROKER:
            check_broker_name(name)
            self._check_broker(name, changes)
            self._check_addresses(merged)
            self._check_cleaner(changes, merged)
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
