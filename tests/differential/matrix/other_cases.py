"""Removes the objects of other cases from responses that list the whole cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

# Names that scenes make, including long names and names that collide.
_MADE = re.compile(r"(.+[-._]v\d+)[-._][a-z]+[-._]\d+x*", re.DOTALL)
# The lists of a response that have items with names, and the field with the name.
_LISTS: dict[ApiKey, tuple[Callable[[Any], list[list[Any]]], str]] = {
    ApiKey.METADATA: (lambda response: [response.topics], "name"),
    ApiKey.LIST_GROUPS: (lambda response: [response.groups], "group_id"),
    ApiKey.DESCRIBE_LOG_DIRS: (lambda response: [each.topics for each in response.results], "name"),
    ApiKey.ELECT_LEADERS: (lambda response: [response.replica_election_results], "topic"),
    ApiKey.LIST_TRANSACTIONS: (lambda response: [response.transaction_states], "transactional_id"),
    ApiKey.LIST_CONFIG_RESOURCES: (lambda response: [response.config_resources], "resource_name"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (lambda response: [response.topics], "name"),
}


def without_other_cases(
    scene: Scene, besides: re.Pattern[str] | None = None
) -> Callable[[Any], None]:
    """Return a function that removes the objects of other cases from a response.

    Args:
        scene: the scene that receives the response.
        besides: names of this scene that are removed too.
    """
    prefix = scene.name().rpartition("-topic-")[0]
    objects = {made for made, _ in scene.pair.shared_objects.values()}
    lists, name_of = _LISTS.get(scene.api, (lambda _: [], ""))

    def is_ours(item: Any) -> bool:
        name = getattr(item, name_of)
        made = _MADE.fullmatch(name or "")
        if (name or "").startswith("__"):
            # Sizes of internal topics depend on how each broker batches.
            return False
        if besides is not None and besides.fullmatch(name or ""):
            return False
        return made is None or made[1] == prefix or name in objects

    def remove_others(response: Any) -> None:
        for items in lists(response):
            items[:] = [each for each in items if is_ours(each)]

    return remove_others
