"""A requested change of the state of a share partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.share.share_partition_state import NO_DELIVERY_COMPLETE_COUNT

if TYPE_CHECKING:
    from barnabas.coordinator.share.state_batches import StateBatch


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a write (WriteShareGroupState)."""

    state_epoch: int
    leader_epoch: int
    # -1 if the start offset does not change.
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    state_batches: list[StateBatch] = msgspec.field(default_factory=list)
