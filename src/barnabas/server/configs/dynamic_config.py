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

_log = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """Follows the broker configurations of the image. Parts subscribe to the keys that they use."""

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
        self._subscribers: list[tuple[frozenset[str], Callable[[ParsedConfig], None]]] = []

    @property
    def static(self) -> ParsedConfig:
        """Configuration that the process was started with."""
        return self._static

    @property
    def subscribed(self) -> frozenset[str]:
        """Keys with a subscriber, which take effect while the broker runs."""
        return frozenset[str]().union(*(names for names, _ in self._subscribers))

    def subscribe(self, names: Iterable[str], take: Callable[[ParsedConfig], None]) -> None:
        """Call `take` with the current configuration whenever the value of one of `names` changes.

        There is no call for the current values. A key also matches its variants for single
        listeners.
        """
        keys = frozenset(names)
        for name in keys:
            assert self._static.definition.key(name).mode is not DynamicMode.READ_ONLY, name
        self._subscribers.append((keys, take))

    def take(self, image: ClusterImage) -> None:
        """Apply the broker configurations of an image, and call the subscribers of changed keys."""
        values, given = dict(self._static.values), dict(self._static_given)
        for resource in (ALL_BROKERS, str(self.node_id)):
            for name, text in image.configs.get(BROKER, resource).items():
                key = self._static.definition.get(without_listener(name))
                if key is None or key.mode is DynamicMode.READ_ONLY:
                    continue
                try:
                    value = key.parse(text)
                except ConfigError as error:
                    # The controller validated the value, but another or older version may have
                    # allowed more.
                    _log.error("Invalid dynamic configuration ignored: error=%s", error)
                    continue
                given[name] = text
                if name in values:
                    values[name] = value
        changed = {name for name, value in values.items() if value != self.current[name]}
        before = self.given
        changed.update(
            without_listener(name)
            for name in {*given, *before}
            if name not in values and given.get(name) != before.get(name)
        )
        if not changed:
            return
        static = self._static
        self.current = ParsedConfig(static.definition, values, static.given, static.unknown)
        self.given = given
        for keys, take in self._subscribers:
            if keys & changed:
                take(self.current)
