"""Log configurations of topics: values of the topic, then of the broker, then the defaults."""

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
    """Return the dynamic broker keys that topics inherit from."""
    synonyms = {synonym.name for key in TOPIC_CONFIGS for synonym in key.synonyms}
    return [
        key.name
        for key in broker_keys
        if key.name in synonyms and key.mode is not DynamicMode.READ_ONLY
    ]


class TopicConfigs:
    """Builds log configurations. The defaults follow the configuration of the broker (KIP-226)."""

    __slots__ = ("_defaults", "_without_own_values")

    def __init__(self, broker: ParsedConfig) -> None:
        # Default value of each topic key.
        self._defaults: dict[str, ConfigValue] = topic_defaults(broker)
        # Shared configuration of all topics without values of their own.
        self._without_own_values = log_config({}, self._defaults)

    def of(self, own: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic that sets the values `own`."""
        if not own:
            return self._without_own_values
        try:
            return log_config(own, self._defaults)
        except ConfigError:
            # A controller of another version may have accepted values that this version rejects.
            _log.exception("Invalid topic configuration, using the defaults")
            return self._without_own_values

    def of_topic(self, image: ClusterImage, topic: str) -> LogConfig:
        """Return the configuration of a topic in the image."""
        return self.of(image.configs.get(TOPIC, topic))

    def apply_broker_config(self, broker: ParsedConfig) -> None:
        """Use the values of `broker` as new defaults."""
        self._defaults = topic_defaults(broker)
        self._without_own_values = log_config({}, self._defaults)
