"""In which order members are served: static ones by their lasting names, then the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.group.assignors.assignor import Subscription

__all__ = ["in_member_order"]


def in_member_order(names: Iterable[str], members: Mapping[str, Subscription]) -> list[str]:
    """Member ids, sorted."""

    def place(name: str) -> tuple[bool, str]:
        instance_id = members[name].instance_id
        return instance_id is None, name if instance_id is None else instance_id

    return sorted(names, key=place)
