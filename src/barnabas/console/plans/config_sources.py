"""Configs with their defaults, and where their values come from.

For a topic's own `retention.ms`, brokers send no synonym with the default, neither ours nor Apache
Kafka's: the default is that of `log.retention.hours`. So the configs of a broker give it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.facade import Client

_REASONS = {
    "topic": "set on this topic",
    "group": "set on this group",
    "dynamic broker": "set at run time on this broker",
    "dynamic default broker": "set at run time for all brokers",
    "static broker": "set in the broker's file",
    "dynamic broker logger": "set at run time",
    "client metrics": "set on this subscription",
    "default": "default",
}


class ExplainedConfig(NamedTuple):
    """A config, its default, and where its value comes from."""

    name: str
    # None: a secret, or not set.
    value: str | None
    # None: there is no default, or the broker does not send it.
    default: str | None
    reason: str
    differs: bool
    is_secret: bool
    can_change: bool
    documentation: str


def explained_configs(
    entries: Iterable[ConfigEntry], inherited: Mapping[str, str] | None = None
) -> list[ExplainedConfig]:
    """Return the configs, those that differ from their defaults first.

    Args:
        entries: the configs, with their synonyms.
        inherited: defaults of configs whose synonyms have none.
    """
    found = [_explained(entry, inherited or {}) for entry in entries]
    return sorted(found, key=lambda each: (not each.differs, each.name))


def _explained(entry: ConfigEntry, inherited: Mapping[str, str]) -> ExplainedConfig:
    defaults = [each.value for each in entry.synonyms if each.source == "default"]
    if defaults:
        default = defaults[-1]
    else:
        default = entry.value if entry.is_default else inherited.get(entry.name)
    is_set = not entry.is_default and entry.source != "default"
    reason = _REASONS.get(entry.source, entry.source)
    if is_set and entry.source != "topic" and entry.synonyms:
        name = entry.synonyms[0].name
        if name != entry.name:
            reason = f"{reason} as {name}"
    return ExplainedConfig(
        name=entry.name,
        value=entry.value,
        default=default,
        reason=reason,
        differs=is_set,
        is_secret=entry.is_sensitive,
        can_change=not entry.is_read_only,
        documentation=entry.documentation or "",
    )


_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
# Topic config -> the broker configs and their units in ms, in order of precedence.
_SOURCES = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}


def needs_broker(entries: Iterable[ConfigEntry]) -> bool:
    """Return whether a topic has such a config of its own, so that its default is not known."""
    return any(entry.name in _SOURCES and not entry.is_default for entry in entries)


def inherited_times(broker: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return what topics without own configs have, by topic config.

    Args:
        broker: the configs of a broker.
    """
    values = {entry.name: entry.value for entry in broker}
    found = {}
    for name, sources in _SOURCES.items():
        for source, unit_ms in sources:
            value = values.get(source)
            if value is not None:
                # A negative number means no limit in each unit.
                number = int(value)
                found[name] = str(number * unit_ms if number >= 0 else number)
                break
    return found


def defaults_of(client: Client, entries: Sequence[ConfigEntry], broker: int) -> dict[str, str]:
    """Return the times that a topic would have without configs of its own.

    Args:
        client: The client.
        entries: The configs of the topic.
        broker: A broker that serves; -1 for none.
    """
    if broker < 0 or not needs_broker(entries):
        return {}
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        found = client.admin.describe_configs([resource])[resource]
    except ClientError:
        return {}
    return {} if isinstance(found, ClientError) else inherited_times(found)
