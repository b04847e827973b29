"""Configs of a client metrics subscription: metrics, interval, and matching clients (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import DynamicMode, between
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

INTERVAL_MS_DEFAULT = 300_000
# A subscription to this prefix includes every metric.
ALL_METRICS = "*"

CLIENT_METRICS_CONFIGS = ConfigDefinition([
    ConfigKey(
        METRICS,
        ConfigType.LIST,
        [],
        "Prefixes of the names of the requested metrics; * for all.",
        mode=DynamicMode.CLUSTER_WIDE,
        distinct=True,
    ),
    ConfigKey(
        INTERVAL_MS,
        ConfigType.INT,
        INTERVAL_MS_DEFAULT,
        "Interval at which a client pushes its metrics.",
        between(100, 3_600_000),
        DynamicMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        MATCH,
        ConfigType.LIST,
        [],
        "Clients that push metrics, each as SELECTOR=REGULAR EXPRESSION; all must match.",
        mode=DynamicMode.CLUSTER_WIDE,
        distinct=True,
    ),
])  # fmt: skip

# The attributes by which clients are selected.
CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"
SELECTORS = frozenset({
    CLIENT_INSTANCE_ID,
    CLIENT_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
})  # fmt: skip


class ClientMatchError(ValueError):
    """A value of `match` is invalid."""


def parse_match(patterns: list[str]) -> dict[str, Pattern]:
    """Return the regular expression of each selector in `match`.

    Raises:
        ClientMatchError: a pattern is not SELECTOR=EXPRESSION, or its selector or regular
            expression is invalid.
    """
    expressions: dict[str, str] = {}
    for pattern in patterns:
        selector, equals, expression = (part.strip() for part in pattern.partition("="))
        if not equals or "=" in expression:
            raise ClientMatchError(f"{pattern!r} is not of the form SELECTOR=REGULAR EXPRESSION")
        if selector not in SELECTORS:
            known = ", ".join(sorted(SELECTORS))
            raise ClientMatchError(f"unknown selector {selector!r}; known selectors: {known}")
        expressions[selector] = expression
    return {selector: _java_pattern(expression) for selector, expression in expressions.items()}


def _java_pattern(expression: str) -> Pattern:
    """Compile a pattern that means the same in Java's syntax."""
    try:
        pattern = Pattern(expression)
        if pattern.has_nested_sets:
            raise PatternError("sets within sets are not supported; write \\[ for a bracket")
    except PatternError as error:
        raise ClientMatchError(
            f"{expression!r} is not a supported regular expression: {error}"
        ) from None
    return pattern


def matches(patterns: Mapping[str, Pattern], client: Mapping[str, str]) -> bool:
    """Return whether a client's attributes, by selector, match all of `patterns`."""
    return all(pattern.matches(client.get(selector, "")) for selector, pattern in patterns.items())
