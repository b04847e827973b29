"""The broker's configuration as it holds now, and who is told when it changes (KIP-226).

What is set on this broker holds over what is set on all brokers, and that over the properties that
the process was started with. Kafka: DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.settings.definition import ParsedConfig
from barnabas.settings.key import ConfigError, DynamicMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.metadata.image import ClusterImage
    from barnabas.settings.range import ConfigValue

_log = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """Follows the broker configs of the image; parts subscribe to the keys that they obey."""

    __slots__ = ("_static", "_subscribers", "current", "node_id")

    def __init__(self, node_id: int, static: ParsedConfig) -> None:
        # Whose configuration this is.
        self.node_id = node_id
        # What the process was started with.
        self._static = static
        # What holds now; replaced whole, never changed.
        self.current = static
        self._subscribers: list[tuple[frozenset[str], Callable[[ParsedConfig], None]]] = []

    def subscribe(self, names: Iterable[str], take: Callable[[ParsedConfig], None]) -> None:
        """Call `take` with the whole configuration whenever the value of one of `names` changes.

        Not called for what holds now: a part is made with that.
        """
        keys = frozenset(names)
        definition = self._static.definition
        for name in keys:
            assert definition.key(name).mode is not DynamicMode.READ_ONLY, name
        self._subscribers.append((keys, take))

    def take(self, image: ClusterImage) -> frozenset[str]:
        """Let the image's broker configs hold, and tell who subscribed.

        Returns:
            The keys whose value has changed.
        """
        before = self.current
        values = dict(self._static.values)
        values.update(self._dynamic_values(image))
        changed = frozenset(name for name, value in values.items() if value != before[name])
        if changed:
            static = self._static
            self.current = ParsedConfig(static.definition, values, static.given, static.unknown)
            for keys, take in self._subscribers:
                if keys & changed:
                    take(self.current)
        return changed

    def _dynamic_values(self, image: ClusterImage) -> Iterator[tuple[str, ConfigValue]]:
        """Keys that are set for all brokers, then those of this one."""
        for resource in (ALL_BROKERS, str(self.node_id)):
            for name, text in image.configs.get(BROKER, resource).items():
                key = self._static.definition.get(name)
                if key is None or key.mode is DynamicMode.READ_ONLY:
                    continue
                try:
                    yield name, key.parse(text)
                except ConfigError as error:
                    # The controller checked it; another, or an older one, may have allowed it.
                    _log.error("The dynamic configuration is left out: %s", error)
