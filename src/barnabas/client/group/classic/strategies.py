"""Resolve `partition.assignment.strategy` to assignors and their common rebalance protocol."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from barnabas.client.errors import ClientConfigError
from barnabas.client.group.assignors.assignor import RebalanceProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.group.assignors.assignor import Assignor

__all__ = ["BUILT_IN", "common_protocol", "resolve_assignors"]

_KEY = "partition.assignment.strategy"
_PACKAGE = "barnabas.client.group.assignors."
# Module and class of the built-in assignors, by the name that members agree on.
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "range": ("range_assignor", "RangeAssignor"),
    "roundrobin": ("round_robin_assignor", "RoundRobinAssignor"),
    "sticky": ("sticky_assignor", "StickyAssignor"),
    "cooperative-sticky": ("cooperative_sticky_assignor", "CooperativeStickyAssignor"),
}
# Java class names, as configurations for Java, kafka-python and librdkafka contain them.
_OTHER_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def resolve_assignors(given: Sequence[object]) -> dict[str, Assignor]:
    """Return new assignors by name, in the given order.

    Args:
        given: Names, classes (created without arguments) or objects.

    Raises:
        ClientConfigError: A name is unknown, an object is not an assignor, or a name occurs twice.
    """
    found: dict[str, Assignor] = {}
    for each in given:
        assignor = _resolve(each)
        if assignor.name in found:
            raise ClientConfigError(f"{_KEY} has {assignor.name} twice")
        found[assignor.name] = assignor
    if not found:
        raise ClientConfigError(f"{_KEY} is empty: name an assignor")
    return found


def common_protocol(assignors: Mapping[str, Assignor]) -> RebalanceProtocol:
    """Return the most advanced rebalance protocol that all assignors support.

    Raises:
        ClientConfigError: The assignors have no common protocol.
    """
    common = set(RebalanceProtocol)
    for assignor in assignors.values():
        common &= set(assignor.protocols)
    if not common:
        names = ", ".join(assignors)
        raise ClientConfigError(f"{_KEY}: {names} have no rebalance protocol in common")
    return max(common)


def _resolve(given: object) -> Assignor:
    if isinstance(given, str):
        name = _OTHER_NAMES.get(given, given)
        if name not in BUILT_IN:
            known = ", ".join(BUILT_IN)
            raise ClientConfigError(f"{_KEY}: {given} is neither a class nor one of {known}")
        module, class_name = BUILT_IN[name]
        given = getattr(importlib.import_module(_PACKAGE + module), class_name)
    made = given() if isinstance(given, type) else given
    if not isinstance(getattr(made, "name", None), str) or not hasattr(made, "assign"):
        raise ClientConfigError(f"{_KEY}: {given!r} has no `name` or no `assign`: extend Assignor")
    return cast("Assignor", made)
