"""Configs as DescribeConfigs shows them: value, source, and where else it could come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.topic_configs import ConfigSource
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
from barnabas.settings.key import DynamicMode, Required
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.configuration import Configuration
    from barnabas.settings.definition import ConfigDefinition, ConfigKey


class SourcedValue(NamedTuple):
    """A value under the name and from the source that gives it."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One key of a resource."""

    key: ConfigKey
    # Those that are set, the one that holds first.
    values: list[SourcedValue]
    read_only: bool

    @property
    def value(self) -> str | None:
        """What holds; None also for what is never shown."""
        if self.key.sensitive or not self.values:
            return None
        return self.values[0].value

    @property
    def source(self) -> ConfigSource:
        """Where it comes from."""
        return self.values[0].source if self.values else ConfigSource.DEFAULT


class DescribedConfigs:
    """Configs of topics and of this broker."""

    __slots__ = ("_broker_keys", "_cluster", "_configuration")

    def __init__(
        self, configuration: Configuration, broker_keys: ConfigDefinition, cluster: ClusterView
    ) -> None:
        self._configuration = configuration
        self._broker_keys = broker_keys
        self._cluster = cluster

    def topic(self, name: str) -> Iterator[DescribedConfig]:
        """All keys of a topic, existing or not."""
        own = self._cluster.image.configs.get(TOPIC, name)
        for key in TOPIC_CONFIGS:
            values = []
            if key.name in own:
                values.append(SourcedValue(key.name, own[key.name], ConfigSource.TOPIC))
            for synonym in key.synonyms:
                values += self._broker_values(synonym.name, synonym.factor)
            if not values:
                values += _default(key)
            yield DescribedConfig(key, values, False)

    def broker(self) -> Iterator[DescribedConfig]:
        """All keys of this broker."""
        for key in self._broker_keys:
            read_only = key.mode is DynamicMode.READ_ONLY
            yield DescribedConfig(key, self._broker_values(key.name), read_only)

    def default_broker(self) -> Iterator[DescribedConfig]:
        """The keys that are set for all brokers."""
        own = self._cluster.image.configs.get(BROKER, ALL_BROKERS)
        for name, value in own.items():
            key = self._broker_keys.get(name)
            if key is not None:
                source = ConfigSource.DYNAMIC_DEFAULT_BROKER
                yield DescribedConfig(key, [SourcedValue(name, value, source)], False)

    def _broker_values(self, name: str, factor: int = 1) -> list[SourcedValue]:
        """What is set of a broker key, the value that holds first, its default last.

        `factor` turns a synonym's unit into the key's, as in hours to milliseconds.
        """
        configs = self._cluster.image.configs
        sources: list[tuple[Mapping[str, str], ConfigSource]] = [
            (configs.get(BROKER, str(self._configuration.node_id)), ConfigSource.DYNAMIC_BROKER),
            (configs.get(BROKER, ALL_BROKERS), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._configuration.given, ConfigSource.STATIC_BROKER),
        ]
        values = [
            SourcedValue(name, values[name], source) for values, source in sources if name in values
        ]
        key = self._broker_keys.get(name)
        if key is not None:
            values += _default(key)
        if factor == 1:
            return values
        return [each._replace(value=_scaled(each.value, factor)) for each in values]


def _default(key: ConfigKey) -> list[SourcedValue]:
    if key.default is None or isinstance(key.default, Required):
        return []
    return [SourcedValue(key.name, key.format(key.default), ConfigSource.DEFAULT)]


def _scaled(value: str | None, factor: int) -> str | None:
    if value is None or not value.lstrip("-").isdigit() or int(value) < 0:
        return value
    return str(int(value) * factor)
