"""The keys that name the server-side assignors of consumer and share groups."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigKey, ConfigType
from barnabas.settings.range import satisfying

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.settings.range import ConfigValue, Range

CONSUMER_ASSIGNORS = ("uniform", "range")
SHARE_ASSIGNORS = ("simple",)
# Kafka takes the names of its classes as well.
_CLASSES = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
    for name in CONSUMER_ASSIGNORS + SHARE_ASSIGNORS
}


def assignor_names(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names of assignors, each given by its name or by the name of Kafka's class."""
    return _assignor_names(tuple(words))


@lru_cache(16)
def _assignor_names(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_CLASSES.get(word, word) for word in words)


def _assignors(known: Collection[str]) -> Range:
    """Allow a list of these assignors, each at most once, and at least one."""

    def accepts(value: ConfigValue) -> bool:
        assert isinstance(value, list), value
        names = assignor_names(value)
        return bool(names) and len(set(names)) == len(names) and set(names) <= set(known)

    text = (
        f"one or more of {', '.join(known)}, each once, also by the names of Kafka's classes; "
        "remove other assignors from the list, since Barnabas runs no Java classes"
    )
    return satisfying(text, accepts)


ASSIGNOR_KEYS = [
    ConfigKey(
        "group.consumer.assignors",
        ConfigType.LIST,
        list(CONSUMER_ASSIGNORS),
        "Server-side assignors that members of consumer groups may choose. The first one is for "
        "groups whose members choose none.",
        _assignors(CONSUMER_ASSIGNORS),
    ),
    ConfigKey(
        "group.share.assignors",
        ConfigType.LIST,
        list(SHARE_ASSIGNORS),
        "The server-side assignor of share groups.",
        _assignors(SHARE_ASSIGNORS),
    ),
]
