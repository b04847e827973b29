"""What configs a topic may have, and what holds for one that sets little (Kafka's ConfigDef)."""

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
    """Where a value comes from; the numbers are Kafka's."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class EffectiveConfig(msgspec.Struct, frozen=True):
    """One key of a topic with the value that holds."""

    key: ConfigKey
    # None for a null value, and for a sensitive one.
    value: str | None
    source: ConfigSource


class TopicConfigs:
    """Checks topic configs and works out those that hold."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._defaults = topic_defaults(config.broker)
        # Dynamic configs of this broker and of all, and what topics inherit under them.
        self._known: (
            tuple[Mapping[str, str], Mapping[str, str], dict[str, EffectiveConfig]] | None
        ) = None

    def check(self, configs: Mapping[str, str | None]) -> None:
        """Refuse configs that no topic may have.

        Raises:
            Refusal: INVALID_CONFIG, naming key, value and what is allowed.
        """
        for name, value in configs.items():
            key = TOPIC_CONFIGS.get(name)
            if key is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is no config of a topic")
            if value is None:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} needs a value")
            try:
                key.parse(value)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
        self._check_together(configs)

    def _check_together(self, configs: Mapping[str, str | None]) -> None:
        """Refuse values that are right alone and wrong beside the others."""
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
        """Every key of a topic that sets `own` itself."""
        return [
            _shown(each.key, own[name], ConfigSource.TOPIC) if name in own else each
            for name, each in self._inherited(image).items()
        ]

    def value(self, image: ClusterImage, topic: str, name: str) -> str | None:
        """The value of one key that holds for an existing topic."""
        text = image.configs.get(TOPIC, topic).get(name, self._inherited(image)[name].value)
        return None if text is None else TOPIC_CONFIGS.key(name).normal(text)

    def min_insync_replicas(self, image: ClusterImage, topic: str) -> int:
        """min.insync.replicas of a topic, which may be more than it has replicas."""
        return int(self.value(image, topic, _MIN_INSYNC_REPLICAS) or "1")

    def has_unclean_election(self, image: ClusterImage, topic: str) -> bool:
        """Whether a replica out of sync may lead the topic's partitions."""
        return self.value(image, topic, _UNCLEAN_ELECTION) == "true"

    def _inherited(self, image: ClusterImage) -> dict[str, EffectiveConfig]:
        """What holds for a topic that sets nothing, worked out again only when brokers' do."""
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
