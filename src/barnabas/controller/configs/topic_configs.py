"""Validation of topic configs, and the effective values of a topic (Kafka's ConfigDef)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.definition import ConfigError
from barnabas.settings.key import ConfigKey, Required
from barnabas.storage.config import TOPIC_CONFIGS, topic_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.metadata.image import ClusterImage

_MIN_COMPACTION_LAG = "min.compaction.lag.ms"
_MAX_COMPACTION_LAG = "max.compaction.lag.ms"
_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_UNCLEAN_ELECTION = "unclean.leader.election.enable"


class ConfigSource(IntEnum):
    """The source of a value; the numbers are Kafka's."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class EffectiveConfig(msgspec.Struct, frozen=True):
    """One key of a topic and its effective value."""

    key: ConfigKey
    # None for a null value, and for a sensitive value.
    value: str | None
    source: ConfigSource


class TopicConfigs:
    """Checks topic configs and computes the effective values."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._defaults = topic_defaults(config.broker)
        # Cache: the dynamic configs of this broker and of all brokers, and the topic values that
        # follow. Valid while both mappings are the same objects in the image.
        self._known: (
            tuple[Mapping[str, str], Mapping[str, str], dict[str, EffectiveConfig]] | None
        ) = None

    def check(self, configs: Mapping[str, str | None]) -> None:
        """Raise Refusal for configs that a topic may not have.

        Raises:
            Refusal: INVALID_CONFIG, with key, value and the allowed values.
        """
        for name, value in configs.items():
            key = TOPIC_CONFIGS.get(name)
            if key is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is not a config of a topic")
            if value is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} requires a value")
            try:
                key.parse(value)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
        self._check_together(configs)

    def _check_together(self, configs: Mapping[str, str | None]) -> None:
        """Refuse values that are valid by themselves but contradict each other."""
        lags = []
        for name in (_MIN_COMPACTION_LAG, _MAX_COMPACTION_LAG):
            text = configs.get(name)
            lags.append(TOPIC_CONFIGS.parse_value(name, text) if text else self._defaults.get(name))
        least, most = lags
        if isinstance(least, int) and isinstance(most, int) and least > most:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"{_MIN_COMPACTION_LAG} of {least} is more than {_MAX_COMPACTION_LAG} of {most}",
            )

    def effective(self, image: ClusterImage, own: Mapping[str, str]) -> list[EffectiveConfig]:
        """Return the effective value of every key, for a topic with the configs `own`."""
        return [
            _shown(each.key, own[name], ConfigSource.TOPIC) if name in own else each
            for name, each in self._inherited(image).items()
        ]

    def value(self, image: ClusterImage, topic: str, name: str) -> str | None:
        """Return the effective value of one key of an existing topic."""
        text = image.configs.get(TOPIC, topic).get(name, self._inherited(image)[name].value)
        return None if text is None else TOPIC_CONFIGS.key(name).normal(text)

    def min_insync_replicas(self, image: ClusterImage, topic: str) -> int:
        """Return min.insync.replicas of a topic, which may exceed its number of replicas."""
        return int(self.value(image, topic, _MIN_INSYNC_REPLICAS) or "1")

    def has_unclean_election(self, image: ClusterImage, topic: str) -> bool:
        """Return whether an out-of-sync replica may lead the topic's partitions."""
        return self.value(image, topic, _UNCLEAN_ELECTION) == "true"

    def _inherited(self, image: ClusterImage) -> dict[str, EffectiveConfig]:
        """Return the values of a topic without own configs, cached until broker configs change."""
        own = image.configs.get(BROKER, str(self._config.node_id))
        everyone = image.configs.get(BROKER, ALL_BROKERS)
        known = self._known
        if known is None or known[0] is not own or known[1] is not everyone:
            dynamic = (
                (ConfigSource.DYNAMIC_BROKER, own),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER, everyone),
            )
            inherited = {key.name: self._inherit(key, dynamic) for key in TOPIC_CONFIGS}
            known = self._known = (own, everyone, inherited)
        return known[2]

    def _inherit(
        self, key: ConfigKey, dynamic: tuple[tuple[ConfigSource, Mapping[str, str]], ...]
    ) -> EffectiveConfig:
        for source, configs in dynamic:
            for synonym in key.synonyms:
                text = configs.get(synonym.name)
                if text is not None:
                    value = str(synonym.convert(int(text))) if synonym.factor != 1 else text
                    return _shown(key, value, source)
        given = any(synonym.name in self._config.broker.given for synonym in key.synonyms)
        source = ConfigSource.STATIC_BROKER if given else ConfigSource.DEFAULT
        default = self._defaults.get(key.name)
        if default is None and not isinstance(key.default, Required):
            default = key.default
        return _shown(key, None if default is None else key.format(default), source)


def _shown(key: ConfigKey, value: str | None, source: ConfigSource) -> EffectiveConfig:
    return EffectiveConfig(key, None if key.sensitive else value, source)
