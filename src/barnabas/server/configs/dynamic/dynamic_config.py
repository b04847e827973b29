"""Dynamic configuration of the broker (KIP-226; Kafka's DynamicBrokerConfig).

Values of this broker override values of all brokers, which override the properties file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.settings.definition import ParsedConfig
from barnabas.settings.key import ConfigError, DynamicMode, without_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.settings.range import ConfigValue

_log = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """Follows the broker configurations of the image, and informs subscribers of changed keys."""

    __slots__ = ("_static", "_static_given", "_subscribers", "current", "given", "node_id")

    def __init__(self, node_id: int, static: ParsedConfig, given: Mapping[str, str]) -> None:
        """Args:
        node_id: id of this broker.
        static: configuration that the process was started with.
        given: given properties as text, including keys of single listeners
            (`listener.name.NAME.KEY`).
        """
        # Broker that this configuration belongs to.
        self.node_id = node_id
        self._static = static
        self._static_given = given
        # Current configuration, as values and as text. Replaced on a change, never modified.
        self.current = static
        self.given: Mapping[str, str] = given
        # Subscribed keys, and the function to call when the value of one of them changes.
        self._subscribers: list[tuple[frozenset[str], Callable[[ParsedConfig], None]]] = []

    @property
    def static(self) -> ParsedConfig:
        """Configuration that the process was started with."""
        return self._static

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
            assert self._static.definition.key(name).mode is not DynamicMode.READ_ONLY, name
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
        values, given = dict(self._static.values), dict(self._static_given)
        for layer in layers:
            for name, text in layer.items():
                key = self._static.definition.get(without_listener(name))
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
        static = self._static
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
