"""Configs with what differs from the default, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.configs import ConfigEntry

__all__ = ["ExplainedConfig", "explained_configs"]

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
        entry.name,
        entry.value,
        default,
        reason,
        is_set,
        entry.is_sensitive,
        not entry.is_read_only,
        entry.documentation or "",
    )
