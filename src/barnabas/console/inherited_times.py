"""Times that a topic inherits from broker configs in another unit.

For a topic's own `retention.ms`, brokers send no synonym with the default, neither ours nor Apache
Kafka's: the default is that of `log.retention.hours`. So the configs of a broker give it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin.configs import ConfigEntry

__all__ = ["inherited_times", "needs_broker"]

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
