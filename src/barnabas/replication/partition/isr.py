"""The in-sync replicas of a partition, committed and proposed (KIP-497)."""

from __future__ import annotations

import msgspec


class IsrState(msgspec.Struct, frozen=True):
    """The ISR that the controller last confirmed, and a change in flight.

    While a change is in flight, the leader does not know whether the controller has applied it. The
    high watermark then depends on the union of both sets, the *maximal* ISR.
    """

    # Confirmed by the controller. Contains the leader.
    isr: tuple[int, ...]
    # Union of the confirmed and the proposed ISR.
    maximal_isr: tuple[int, ...]
    # The proposal in flight, or None.
    proposed_isr: tuple[int, ...] | None = None

    @classmethod
    def committed(cls, isr: tuple[int, ...]) -> IsrState:
        """Return the state without a proposal in flight."""
        return cls(isr, isr)

    @property
    def is_in_flight(self) -> bool:
        """Whether a proposal is in flight."""
        return self.proposed_isr is not None

    def expanded(self, broker_id: int) -> IsrState:
        """Return the state with a proposal to add `broker_id`, which counts at once."""
        assert not self.is_in_flight, f"in flight: {self}"
        assert broker_id not in self.isr, f"broker_id={broker_id} isr={self.isr}"
        isr = (*self.isr, broker_id)
        return IsrState(self.isr, isr, isr)

    def shrunk(self, broker_ids: set[int]) -> IsrState:
        """Return the state with a proposal to remove `broker_ids`, which count until confirmed."""
        assert not self.is_in_flight, f"in flight: {self}"
        # A proper part: the leader stays, see LeaderInIsr.
        assert broker_ids < set(self.isr), f"broker_ids={broker_ids} isr={self.isr}"
        return IsrState(self.isr, self.isr, tuple(i for i in self.isr if i not in broker_ids))

    def withdrawn(self) -> IsrState:
        """Return the state after a rejected proposal: the confirmed ISR."""
        return IsrState.committed(self.isr)
