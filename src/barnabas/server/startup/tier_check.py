"""The check of a broker without a remote tier that it hosts no tiered topic (KIP-405)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.remote_rules import has_remote_tier
from barnabas.metadata.configs_image import TOPIC
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.storage.remote_keys import SYSTEM_ENABLE

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage

_NAMED = 3


def missing_tier(image: ClusterImage, node_id: int) -> NodeFailedError | None:
    """Return the error of a broker without a remote tier that has replicas of tiered topics.

    The broker must not open their logs: it would take the first local offset for the beginning of
    the log, and delete local segments that have no copy yet by the topic's total retention.

    Args:
        image: the metadata at the broker's start.
        node_id: id of the broker.
    """
    tiered = [name for name, own in image.configs.of_type(TOPIC).items() if has_remote_tier(own)]
    hosted = sorted(name for name in tiered if _hosts(image, name, node_id))
    if not hosted:
        return None
    more = f" and {len(hosted) - _NAMED} more" if len(hosted) > _NAMED else ""
    return NodeFailedError(
        f"{SYSTEM_ENABLE} is false, but this broker has replicas of topics with"
        f" remote.storage.enable=true: {', '.join(hosted[:_NAMED])}{more}. Set {SYSTEM_ENABLE}=true"
        " again, or delete all such topics before you disable tiered storage"
    )


def _hosts(image: ClusterImage, topic: str, node_id: int) -> bool:
    found = image.topics.by_name(topic)
    return found is not None and any(node_id in each.replicas for each in found.partitions.values())
