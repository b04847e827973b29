"""Keys of client quotas (Kafka: QuotaConfig); the quotas themselves are metadata."""

from __future__ import annotations

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least

QUOTA_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "quota.window.num",
            ConfigType.INT,
            11,
            "How many windows the rates of client quotas are measured over.",
            at_least(1),
        ),
        ConfigKey(
            "quota.window.size.seconds",
            ConfigType.INT,
            1,
            "How long one window of client quotas is.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.num",
            ConfigType.INT,
            11,
            "How many windows' worth of controller mutations may come at once.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "How long one window of the controller mutation quota is.",
            at_least(1),
        ),
    ]
)
