"""Described configurations: effective value, sources and other settings of each key (KIP-226).

The most specific setting wins. The configuration of the resource itself comes first. For topics,
the corresponding broker key is next. A broker key has these values, in order: dynamic for this
broker, dynamic for all brokers, static, and default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.config_rules import ConfigSource
from barnabas.metadata.client_metrics_configs import CLIENT_METRICS_CONFIGS
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.metadata.group_configs import GROUP_CONFIGS
from barnabas.replication.links.link_table import LINK_PREFIX, client_key_of
from barnabas.server.configs.config_admin import described_levels
from barnabas.settings.key import ConfigKey, ConfigType, DynamicMode, Required, without_listener
from barnabas.storage.config import TOPIC_CONFIGS, topic_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig


# Type of unknown keys and of loggers, as in Kafka.
_NO_TYPE = 0


class SourcedValue(NamedTuple):
    """A value with its source and the key that sets it."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One key of a resource, as described to clients."""

    name: str
    # Effective value. None if there is no value, or if it must not be shown.
    value: str | None
    # All values that are set, the effective one first.
    values: list[SourcedValue]
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    type: int = _NO_TYPE
    doc: str | None = None


# Broker keys for the same setting in different units, in order of precedence.
_GROUPS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_GROUP_OF = {name: group for group in _GROUPS for name in group}


class DescribedConfigs:
    """Describes the configurations of all resource types, as this broker knows them."""

    def __init__(
        self, configuration: Configuration, dynamic: DynamicBrokerConfig, cluster: ClusterView
    ) -> None:
        self._configuration = configuration
        self._dynamic = dynamic
        self._cluster = cluster

    def topic(self, name: str) -> Iterator[DescribedConfig]:
        """Yield all keys of a topic, but internal ones only if set. The topic need not exist."""
        own = self._cluster.image.configs.get(TOPIC, name)
        inherited = topic_defaults(self._dynamic.current)
        for key in TOPIC_CONFIGS:
            if key.internal and key.name not in own:
                continue
            values = self._broker_values(key.synonyms[0].name) if key.synonyms else []
            value = key.format(inherited[key.name]) if key.name in inherited else _default_text(key)
            if key.name in own:
                value = key.normal(own[key.name])
                values.insert(0, SourcedValue(key.name, value, ConfigSource.TOPIC))
            yield _described(key, value, values)

    def broker(self) -> Iterator[DescribedConfig]:
        """Yield all keys of this broker, including set keys that it does not know.

        Internal keys are included only if they are set.
        """
        current = self._dynamic.current
        for key in current.definition:
            values = self._broker_values(key.name)
            if key.internal and all(each.source is ConfigSource.DEFAULT for each in values):
                continue
            text = key.format(current[key.name])
            yield _described(key, text, values)._replace(
                read_only=key.mode is DynamicMode.READ_ONLY
            )
        configs = self._cluster.image.configs
        unknown = {
            name
            for resource in (ALL_BROKERS, str(self._configuration.node_id))
            for name in configs.get(BROKER, resource)
            if name not in current.definition
        }
        for name in sorted(unknown):
            base = without_listener(name)
            declared = current.definition.get(base)
            values = self._broker_values(name)
            if declared is None:
                yield _unknown(name, values)
            else:
                # A key with a listener prefix falls back to the key without the prefix.
                values += self._broker_values(base)
                described = _described(declared, values[0].value, values)
                yield described._replace(name=name)

    def default_broker(self) -> Iterator[DescribedConfig]:
        """Yield the keys that are set for all brokers."""
        own = self._cluster.image.configs.get(BROKER, ALL_BROKERS)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        for name, value in own.items():
            key = self._dynamic.current.definition.get(name)
            values = [SourcedValue(name, value, source)]
            yield _unknown(name, values) if key is None else _described(key, value, values)

    def client_metrics(self, name: str) -> Iterator[DescribedConfig]:
        """Yield all keys of a client metrics subscription. The subscription need not exist."""
        own = self._cluster.image.configs.get(CLIENT_METRICS, name)
        for key in CLIENT_METRICS_CONFIGS:
            values = _own_values(key, own, ConfigSource.CLIENT_METRICS)
            yield _described(key, values[0].value if values else _default_text(key), values)

    def group(self, name: str) -> Iterator[DescribedConfig]:
        """Yield all keys of a group, but internal ones only if set. The group need not exist."""
        own = self._cluster.image.configs.get(GROUP, name)
        for key in GROUP_CONFIGS:
            if key.internal and key.name not in own:
                continue
            values = _own_values(key, own, ConfigSource.GROUP)
            if key.synonyms:
                values += self._broker_values(key.synonyms[0].name)
            else:
                values.append(SourcedValue(key.name, _default_text(key), ConfigSource.DEFAULT))
            yield _described(key, values[0].value, values)

    def loggers(self) -> Iterator[DescribedConfig]:
        """Yield the levels of this process's loggers."""
        for name, level in described_levels().items():
            yield DescribedConfig(name, level, [], ConfigSource.BROKER_LOGGER, doc="")

    def _broker_values(self, name: str) -> list[SourcedValue]:
        """Return the values of a broker key, the effective one first and the default last.

        Values of the same setting in another unit are included after the first value of `name`.
        """
        configs = self._cluster.image.configs
        names = _GROUP_OF.get(name, (name,))
        sources: list[tuple[Mapping[str, str], ConfigSource]] = [
            (configs.get(BROKER, str(self._configuration.node_id)), ConfigSource.DYNAMIC_BROKER),
            (configs.get(BROKER, ALL_BROKERS), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._configuration.given, ConfigSource.STATIC_BROKER),
        ]
        values = [
            SourcedValue(each, texts[each], source)
            for texts, source in sources
            for each in names
            if each in texts
        ]
        for each in names:
            key = self._dynamic.current.definition.get(each)
            default = None if key is None else _default_text(key)
            if default is not None:
                values.append(SourcedValue(each, default, ConfigSource.DEFAULT))
        while values and values[0].name != name:
            del values[0]
        return values


def _described(key: ConfigKey, value: str | None, values: list[SourcedValue]) -> DescribedConfig:
    source = values[0].source if values else ConfigSource.DEFAULT
    if key.sensitive:
        value, values = None, [each._replace(value=None) for each in values]
    return DescribedConfig(
        key.name, value, values, source, sensitive=key.sensitive, type=key.type, doc=key.doc
    )


def _hidden(name: str, values: list[SourcedValue]) -> DescribedConfig:
    """Describe an unknown key without its value, which may be a secret of a plug-in."""
    values = [each._replace(value=None) for each in values]
    source = values[0].source if values else ConfigSource.DEFAULT
    return DescribedConfig(name, None, values, source, read_only=True, sensitive=True)


def _unknown(name: str, values: list[SourcedValue]) -> DescribedConfig:
    """Describe a key that no definition has: a setting of a link, or a plug-in's key."""
    if name.startswith(LINK_PREFIX):
        # Imported only for clusters with links.
        from barnabas.client.config import is_secret

        client_key = client_key_of(name)
        if client_key is None or not is_secret(client_key):
            own = values[0]
            return DescribedConfig(name, own.value, values, own.source, type=ConfigType.STRING)
    return _hidden(name, values)


def _own_values(key: ConfigKey, own: Mapping[str, str], source: ConfigSource) -> list[SourcedValue]:
    if key.name not in own:
        return []
    return [SourcedValue(key.name, key.normal(own[key.name]), source)]


def _default_text(key: ConfigKey) -> str | None:
    return None if isinstance(key.default, Required) else key.format(key.default)
