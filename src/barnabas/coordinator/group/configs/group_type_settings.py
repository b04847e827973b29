"""The configuration of the groups of one type: the broker's keys, and the configs of groups."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from barnabas.coordinator.group.configs.kind_configs import (
    ConsumerGroupConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

C = TypeVar("C")


def _no_overrides(_group_id: str) -> Mapping[str, str]:
    return {}


@cache
def _fields_of(name: str) -> tuple[str, str, str]:
    """Return the fields of the broker's value for a group's config, of its minimum and maximum."""
    type_name, _, rest = name.partition(".")
    field = rest.replace(".", "_")
    # The limit of `num.standby.replicas` is `max.standby.replicas`.
    limited = field.removeprefix("num_")
    return (
        f"group_{type_name}_{field}",
        f"group_{type_name}_min_{limited}",
        f"group_{type_name}_max_{limited}",
    )


class GroupTypeSettings(msgspec.Struct, Generic[C]):
    """The configuration of consumer, share or streams groups."""

    # The broker replaces it when a dynamic key changes.
    config: C
    # Returns the configs of a group, which override the broker's.
    overrides: Callable[[str], Mapping[str, str]] = _no_overrides

    def value(self, group_id: str, name: str) -> int:
        """Return a number of a group's config. The broker's limits apply to the group's value.

        Args:
            group_id: the group.
            name: the name of the config, such as `share.session.timeout.ms`.
        """
        return self._value(self.overrides(group_id).get(name), name)

    def values(self, group_id: str, first: str, second: str) -> tuple[int, int]:
        """Return two numbers of a group's config, like `value`."""
        own = self.overrides(group_id)
        if not own:
            config = self.config
            return getattr(config, _fields_of(first)[0]), getattr(config, _fields_of(second)[0])
        return self._value(own.get(first), first), self._value(own.get(second), second)

    def _value(self, own: str | None, name: str) -> int:
        broker_field, lowest_field, highest_field = _fields_of(name)
        if own is None:
            broker_value: int = getattr(self.config, broker_field)
            return broker_value
        lowest: int | None = getattr(self.config, lowest_field, None)
        highest: int | None = getattr(self.config, highest_field, None)
        value = int(own) if lowest is None else max(int(own), lowest)
        return value if highest is None else min(value, highest)


class GroupSettings(msgspec.Struct):
    """The configuration of consumer, share and streams groups. The broker changes it."""

    consumers: GroupTypeSettings[ConsumerGroupConfig] = msgspec.field(
        default_factory=lambda: GroupTypeSettings(ConsumerGroupConfig())
    )
    shares: GroupTypeSettings[ShareGroupConfig] = msgspec.field(
        default_factory=lambda: GroupTypeSettings(ShareGroupConfig())
    )
    streams: GroupTypeSettings[StreamsGroupConfig] = msgspec.field(
        default_factory=lambda: GroupTypeSettings(StreamsGroupConfig())
    )
