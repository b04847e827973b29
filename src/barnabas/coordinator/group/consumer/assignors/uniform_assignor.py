"""The `uniform` assignor: balanced first, then as few movements as possible (KIP-848).

It takes the decisions of Kafka's UniformAssignor, which has one algorithm for members with equal
subscriptions, and another for all other groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.assignors.different_subscriptions import assign_different
from barnabas.coordinator.group.consumer.assignors.equal_subscriptions import assign_equal

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.assignors.assignor_input import (
        Assigning,
        AssignorInput,
    )


def assign_uniformly(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member. Yields."""
    if not given.members:
        return {}
    if given.is_homogeneous:
        return (yield from assign_equal(given))
    return (yield from assign_different(given))
