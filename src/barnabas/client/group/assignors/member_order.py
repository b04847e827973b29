"""The order in which members are served: static members by instance id, then the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.group.assignors.assignor import MemberSubscription

__all__ = ["in_member_order"]


def in_member_order(names: Iterable[str], members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the member ids in this order."""

    def place(name: str) -> tuple[bool, str]:
        instance_id = members[name].instance_id
        return instance_id is None, name if instance_id is None else instance_id

    return sorted(names, key=place)
