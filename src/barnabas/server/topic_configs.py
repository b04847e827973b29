"""The configuration of each topic's logs: what the topic sets, else the broker, else Kafka."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import TOPIC
from barnabas.settings.key import ConfigError, DynamicMode
from barnabas.storage.config import TOPIC_CONFIGS, log_config, topic_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.settings.definition import ConfigDefinition, ParsedConfig
    from barnabas.settings.range import ConfigValue
    from barnabas.storage.config import LogConfig

_log = logging.getLogger(__name__)


def default_keys(broker_keys: ConfigDefinition) -> list[str]:
    """The broker keys that give topics their defaults and may change while the broker runs."""
    synonyms = {synonym.name for key in TOPIC_CONFIGS for synonym in key.synonyms}
    return [
        key.name
        for key in broker_keys
        if key.name in synonyms and key.mode is not DynamicMode.READ_ONLY
    ]


class TopicConfigs:
    """Log configurations; the defaults follow the broker's configuration (KIP-226)."""

    __slots__ = ("_defaults", "_of_nothing")

    def __init__(self, broker: ParsedConfig) -> None:
        # Value of each topic key for topics that set nothing.
        self._defaults: dict[str, ConfigValue] = topic_defaults(broker)
        # The configuration of those; one for all of them.
        self._of_nothing = log_config({}, self._defaults)

    def of(self, own: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic that sets `own`."""
        if not own:
            return self._of_nothing
        try:
            return log_config(own, self._defaults)
        except ConfigError:
            # The controller checked it; an older or other controller may have allowed it.
            _log.exception("A topic's configuration cannot be used; the defaults hold")
            return self._of_nothing

    def of_topic(self, image: ClusterImage, topic: str) -> LogConfig:
        """The configuration of a topic as the image has it."""
        return self.of(image.configs.get(TOPIC, topic))

    def take_broker_config(self, broker: ParsedConfig) -> None:
        """Topics inherit from `broker` from now on."""
        self._defaults = topic_defaults(broker)
        self._of_nothing = log_config({}, self._defaults)
