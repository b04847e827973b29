"""Configurations that change while the broker runs (KIP-226; Kafka's DynamicBrokerConfig).

Values of this broker override values of all brokers, which override the properties file. The values
of a topic override those of the broker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_THROTTLED_RATE,
    NUM_REPLICA_FETCHERS,
)
from barnabas.server.quotas.config import CONNECTION_KEYS, connection_bounds
from barnabas.settings.definition import ParsedConfig
from barnabas.settings.key import ConfigError, DynamicMode, without_listener
from barnabas.storage.config import (
    CLEANER_KEYS,
    CLEANER_THREADS,
    HOLD_KEY,
    LOCAL_TOPICS,
    PRODUCER_EXPIRATION,
    TOPIC_CONFIGS,
    TRANSACTION_VERIFICATION,
    log_config,
    topic_defaults,
)
from barnabas.storage.remote_keys import (
    COPIER_THREADS,
    EXPIRATION_THREADS,
    READER_THREADS,
    SYSTEM_ENABLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas
    from barnabas.settings.definition import ConfigDefinition
    from barnabas.settings.key import ConfigValue
    from barnabas.storage.config import LogConfig
    from barnabas.storage.manager.log_manager import LogManager


_log = logging.getLogger(__name__)

# Configurations of topics that are kept for the next log of the same topic.
_BUILT_MAX = 1_000


def default_keys(broker_keys: ConfigDefinition) -> list[str]:
    """Return the dynamic broker keys that topics inherit from."""
    synonyms = {synonym.name for key in TOPIC_CONFIGS for synonym in key.synonyms}
    return [
        key.name
        for key in broker_keys
        if key.name in synonyms and key.mode is not DynamicMode.READ_ONLY
    ]


class TopicConfigs:
    """Builds log configurations. The defaults follow the configuration of the broker (KIP-226)."""

    def __init__(self, broker: ParsedConfig) -> None:
        # Default value of each topic key.
        self._defaults: dict[str, ConfigValue] = topic_defaults(broker)
        # Whether topics can have a remote tier.
        self._is_tiered = broker.boolean(SYSTEM_ENABLE)
        # Shared configuration of all topics without values of their own.
        self._without_own_values = log_config({}, self._defaults)
        # Configurations by the topics' own values, and by whether the topics may have a remote
        # tier. The logs of a topic share one object, because building one takes 50 µs.
        self._built: dict[tuple[bool, frozenset[tuple[str, str]]], LogConfig] = {}

    def of(self, topic: str, own: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic that sets the values `own`."""
        if not own:
            return self._without_own_values
        may_be_remote = self._is_tiered and topic not in LOCAL_TOPICS
        key = (may_be_remote, frozenset(own.items()))
        built = self._built.get(key)
        if built is not None:
            return built
        try:
            built = log_config(own, self._defaults, may_be_remote=may_be_remote)
        except ConfigError:
            # A controller of another version may have accepted values that this version rejects.
            _log.exception("Invalid topic configuration, using the defaults")
            return self._without_own_values
        if len(self._built) >= _BUILT_MAX:
            self._built.clear()
        self._built[key] = built
        return built

    def of_topic(self, image: ClusterImage, topic: str) -> LogConfig:
        """Return the configuration of a topic in the image."""
        return self.of(topic, image.configs.get(TOPIC, topic))

    def apply_broker_config(self, broker: ParsedConfig) -> None:
        """Use the values of `broker` as new defaults."""
        self._defaults = topic_defaults(broker)
        self._without_own_values = log_config({}, self._defaults)
        self._built.clear()


class DynamicBrokerConfig:
    """Follows the broker configurations of the image, and informs subscribers of changed keys."""

    def __init__(self, node_id: int, static: ParsedConfig, given: Mapping[str, str]) -> None:
        """Begin with the static configuration.

        Args:
            node_id: id of this broker.
            static: configuration that the process was started with.
            given: given properties as text, including keys of single listeners
                (`listener.name.NAME.KEY`).
        """
        # Broker that this configuration belongs to.
        self.node_id = node_id
        # Configuration that the process was started with.
        self.static = static
        self._static_given = given
        # Current configuration, as values and as text. Replaced on a change, never modified.
        self.current = static
        self.given: Mapping[str, str] = given
        # Subscribed keys, and the function to call when the value of one of them changes.
        self._subscribers: list[tuple[frozenset[str], Callable[[ParsedConfig], None]]] = []

    @property
    def subscribed(self) -> frozenset[str]:
        """Keys with a subscriber, which take effect while the broker runs."""
        return frozenset[str]().union(*(names for names, _ in self._subscribers))

    def subscribe(self, names: Iterable[str], on_change: Callable[[ParsedConfig], None]) -> None:
        """Call `on_change` with the current configuration when the value of one of `names` changes.

        There is no call for the current values. A key also matches its variants for single
        listeners.
        """
        keys = frozenset(names)
        for name in keys:
            assert self.static.definition.key(name).mode is not DynamicMode.READ_ONLY, name
        self._subscribers.append((keys, on_change))

    def with_changes(
        self, image: ClusterImage, changes: Mapping[str, str | None]
    ) -> tuple[ParsedConfig, Mapping[str, str]]:
        """Return the configuration, as values and as text, after changes of this broker's own keys.

        Args:
            image: the cluster before the changes.
            changes: new values by key; None for removed keys.
        """
        configs = image.configs
        own = {**configs.get(BROKER, str(self.node_id)), **changes}
        kept = {name: text for name, text in own.items() if text is not None}
        values, given = self._merged([configs.get(BROKER, ALL_BROKERS), kept])
        return self._parsed(values), given

    def _merged(
        self, layers: list[Mapping[str, str]]
    ) -> tuple[dict[str, ConfigValue], dict[str, str]]:
        """Return the values and the texts of the static configuration with `layers` over it."""
        values, given = dict(self.static.values), dict(self._static_given)
        for layer in layers:
            for name, text in layer.items():
                key = self.static.definition.get(without_listener(name))
                if key is None or key.mode is DynamicMode.READ_ONLY:
                    continue
                try:
                    value = key.parse(text)
                except ConfigError as error:
                    # A controller of another version may have accepted a value that this version
                    # rejects.
                    _log.error("Invalid dynamic configuration ignored: error=%s", error)
                    continue
                given[name] = text
                if name in values:
                    values[name] = value
        return values, given

    def _parsed(self, values: dict[str, ConfigValue]) -> ParsedConfig:
        static = self.static
        return ParsedConfig(static.definition, values, static.given, static.unknown)

    def apply_image(self, image: ClusterImage) -> None:
        """Apply the broker configurations of an image, and call the subscribers of changed keys."""
        configs = image.configs
        values, given = self._merged(
            [configs.get(BROKER, ALL_BROKERS), configs.get(BROKER, str(self.node_id))]
        )
        changed = {name for name, value in values.items() if value != self.current[name]}
        before = self.given
        changed.update(
            without_listener(name)
            for name in {*given, *before}
            if name not in values and given.get(name) != before.get(name)
        )
        if not changed:
            return
        self.current = self._parsed(values)
        self.given = given
        for keys, on_change in self._subscribers:
            if keys & changed:
                on_change(self.current)


def subscribe_to_dynamic_keys(
    dynamic: DynamicBrokerConfig,
    logs: LogManager,
    replicas: ReplicaManager,
    connections: ConnectionQuotas,
) -> None:
    """Subscribe each component to the keys that it uses."""

    def apply_connection_bounds(config: ParsedConfig) -> None:
        connections.set_bounds(connection_bounds(config, dynamic.given))

    def apply_expiration(config: ParsedConfig) -> None:
        logs.set_producer_expiration(config.integer(PRODUCER_EXPIRATION))

    def apply_verification(config: ParsedConfig) -> None:
        logs.set_transaction_verification(config.boolean(TRANSACTION_VERIFICATION))

    def apply_retention_hold(config: ParsedConfig) -> None:
        logs.trusted_clock.hold_ms = config.integer(HOLD_KEY)

    def apply_replication(config: ParsedConfig) -> None:
        replicas.followed.resize(config.integer(NUM_REPLICA_FETCHERS))
        replicas.throttles.leader.bytes_per_second = config.integer(LEADER_THROTTLED_RATE)
        replicas.throttles.follower.bytes_per_second = config.integer(FOLLOWER_THROTTLED_RATE)
        replicas.throttles.moves.bytes_per_second = config.integer(MOVES_THROTTLED_RATE)

    dynamic.subscribe((key.name for key in CONNECTION_KEYS), apply_connection_bounds)
    dynamic.subscribe(CLEANER_KEYS, logs.cleaner.apply_broker_config)
    dynamic.subscribe((PRODUCER_EXPIRATION,), apply_expiration)
    dynamic.subscribe((TRANSACTION_VERIFICATION,), apply_verification)
    dynamic.subscribe((HOLD_KEY,), apply_retention_hold)
    rates = (LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE, MOVES_THROTTLED_RATE)
    dynamic.subscribe((NUM_REPLICA_FETCHERS, *rates), apply_replication)


GRADUAL = (
    CLEANER_THREADS,
    NUM_REPLICA_FETCHERS,
    COPIER_THREADS,
    EXPIRATION_THREADS,
    READER_THREADS,
)


class GradualKeys:
    """Limits of keys whose value a request may at most double or halve (Kafka: DynamicThreadPool).

    A typing error such as an additional zero therefore cannot start a thousand processes.
    """

    def __init__(self, dynamic: DynamicBrokerConfig, cluster: ClusterView) -> None:
        self._dynamic = dynamic
        self._cluster = cluster

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Check that the changes are not too large.

        Args:
            resource: name of the broker resource; empty for all brokers.
            changes: new values by key; None for deleted keys.

        Raises:
            Refusal: INVALID_REQUEST. The controller reports values that are not numbers.
        """
        for name in GRADUAL:
            if name not in changes:
                continue
            before = self._dynamic.current.integer(name)
            after = self._after(name, resource, changes[name])
            if after is not None and not before // 2 <= after <= before * 2:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{name} is {before}: one change may at most double or halve it, but the new"
                    f" value is {after}",
                )

    def _after(self, name: str, resource: str, text: str | None) -> int | None:
        """Return the value of a key on this broker after the change, or None for invalid text.

        The value of this broker overrides the value of all brokers, which overrides the properties
        file.
        """
        configs = self._cluster.image.configs
        for each in (str(self._dynamic.node_id), ALL_BROKERS):
            found = text if each == resource else configs.get(BROKER, each).get(name)
            if found is not None:
                try:
                    value = self._dynamic.current.definition.key(name).parse(found)
                except ConfigError:
                    return None
                assert isinstance(value, int), value
                return value
        return self._dynamic.static.integer(name)
