"""The in-sync replicas of a partition, committed and proposed (KIP-497)."""

from __future__ import annotations

import msgspec


class IsrState(msgspec.Struct, frozen=True):
    """The ISR as the controller last confirmed it, and a change of it on its way.

    While a change is in flight the controller may or may not have made it, so the larger of both
    sets, the *maximal* ISR, is what the high watermark waits for.
    """

    # Confirmed by the controller. The leader is in it.
    isr: tuple[int, ...]
    # Confirmed and proposed together: never smaller than either.
    maximal_isr: tuple[int, ...]
    # On its way to the controller; None if nothing is.
    proposed_isr: tuple[int, ...] | None = None

    @classmethod
    def committed(cls, isr: tuple[int, ...]) -> IsrState:
        """Nothing in flight."""
        return cls(isr, isr)

    @property
    def is_in_flight(self) -> bool:
        """Whether a proposal has not been answered yet."""
        return self.proposed_isr is not None

    def expanded(self, broker_id: int) -> IsrState:
        """`broker_id` is proposed to join; it counts at once."""
        assert not self.is_in_flight
        assert broker_id not in self.isr
        isr = (*self.isr, broker_id)
        return IsrState(self.isr, isr, isr)

    def shrunk(self, broker_ids: set[int]) -> IsrState:
        """`broker_ids` are proposed to leave; they count until the controller agreed."""
        assert not self.is_in_flight
        assert broker_ids < set(self.isr)
        return IsrState(self.isr, self.isr, tuple(i for i in self.isr if i not in broker_ids))

    def withdrawn(self) -> IsrState:
        """The proposal was refused for good: what is confirmed stays."""
        return IsrState.committed(self.isr)
