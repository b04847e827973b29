"""The configuration of each topic's logs: what the topic sets, else the broker, else Kafka."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
from barnabas.settings.key import ConfigError
from barnabas.storage.config import log_config, topic_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.server.configuration import Configuration
    from barnabas.settings.definition import ConfigDefinition
    from barnabas.settings.range import ConfigValue
    from barnabas.storage.config import LogConfig

_log = logging.getLogger(__name__)


class TopicConfigs:
    """Log configurations; the defaults follow the broker configs of the image (KIP-226)."""

    __slots__ = ("_configuration", "_defaults", "_keys")

    def __init__(self, configuration: Configuration, keys: ConfigDefinition) -> None:
        self._configuration = configuration
        self._keys = keys
        # Value of each topic key for topics that set nothing.
        self._defaults: dict[str, ConfigValue] = topic_defaults(configuration.parsed)

    def of(self, own: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic that sets `own`."""
        try:
            return log_config(own, self._defaults)
        except ConfigError:
            # The controller checked it; an older or other controller may have allowed it.
            _log.exception("A topic's configuration cannot be used; the defaults hold")
            return log_config({}, self._defaults)

    def of_topic(self, image: ClusterImage, topic: str) -> LogConfig:
        """The configuration of a topic as the image has it."""
        return self.of(image.configs.get(TOPIC, topic))

    def take_broker_configs(self, image: ClusterImage) -> bool:
        """Let the image's broker configs hold; returns whether any default changed by it."""
        merged = {
            **self._configuration.given,
            **image.configs.get(BROKER, ALL_BROKERS),
            **image.configs.get(BROKER, str(self._configuration.node_id)),
        }
        try:
            defaults = topic_defaults(self._keys.parse(merged))
        except ConfigError:
            _log.exception("The broker's dynamic configuration cannot be used; the old one holds")
            return False
        changed = defaults != self._defaults
        self._defaults = defaults
        return changed
