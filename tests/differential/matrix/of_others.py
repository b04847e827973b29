"""Removes the objects of other cases from responses that list the whole cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

# Names that scenes make, long ones and ones that collide with others among them.
_MADE = re.compile(r"(.+[-._]v\d+)[-._][a-z]+[-._]\d+x*", re.DOTALL)
# Where an answer lists by name.
_LISTS: dict[ApiKey, tuple[Callable[[Any], list[list[Any]]], str]] = {
    ApiKey.METADATA: (lambda answer: [answer.topics], "name"),
    ApiKey.LIST_GROUPS: (lambda answer: [answer.groups], "group_id"),
    ApiKey.DESCRIBE_LOG_DIRS: (lambda answer: [each.topics for each in answer.results], "name"),
    ApiKey.ELECT_LEADERS: (lambda answer: [answer.replica_election_results], "topic"),
    ApiKey.LIST_TRANSACTIONS: (lambda answer: [answer.transaction_states], "transactional_id"),
    ApiKey.LIST_CONFIG_RESOURCES: (lambda answer: [answer.config_resources], "resource_name"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (lambda answer: [answer.topics], "name"),
}


def without_others(scene: Scene, besides: re.Pattern[str] | None = None) -> Callable[[Any], None]:
    """Takes out of an answer what is neither this scene's nor the whole matrix's.

    Args:
        scene: whose answers they are.
        besides: names of this scene's that are taken out as well.
    """
    prefix = scene.name().rpartition("-topic-")[0]
    standing = {made for made, _ in scene.pair.standing.values()}
    lists, name_of = _LISTS.get(scene.api, (lambda _: [], ""))

    def is_ours(item: Any) -> bool:
        name = getattr(item, name_of)
        made = _MADE.fullmatch(name or "")
        if (name or "").startswith("__"):
            # The brokers' own, whose sizes depend on how they batch.
            return False
        if besides is not None and besides.fullmatch(name or ""):
            return False
        return made is None or made[1] == prefix or name in standing

    def take_out(answer: Any) -> None:
        for items in lists(answer):
            items[:] = [each for each in items if is_ours(each)]

    return take_out
