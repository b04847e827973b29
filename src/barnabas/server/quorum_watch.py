"""Notices that the metadata quorum is lost: in the log, for `/readyz` and as gauges.

A node that has had no contact with a leader for a moment asks all voters whether they answer. If
less than a majority answers, the quorum is lost. It is lost too if the voters answer and elect no
leader for some seconds. Kafka says nothing of it but by the gauges of its raft-metrics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.server.reachability import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDoors
    from barnabas.network.network_error import NetworkError
    from barnabas.raft.driver import RaftDriver
    from barnabas.runtime.timer import Cancellable

_log = logging.getLogger(__name__)

# How often the replica's role is looked at. With the time without contact (`CONTACT_MS`) and that
# of a probe, 1 s each, a loss is seen after 2.5 s at most.
_INTERVAL_MS = 250.0
# How long voters that answer may take to elect a leader.
_ELECTION_MS = 2_500.0


class QuorumWatch:
    """Looks at one replica of the quorum until it is stopped."""

    def __init__(
        self,
        doors: ChannelDoors,
        quorum: RaftDriver,
        has_contact: Callable[[], bool],
        is_awaited: Callable[[], bool],
    ) -> None:
        """Args:
        doors: for the connections by which the voters are asked.
        quorum: the replica of this node.
        has_contact: whether the quorum works, as far as this node has seen lately.
        is_awaited: whether the node still waits for its first leader: `QuorumWait` tells the log
            then.
        """
        self._has_contact = has_contact
        self._is_awaited = is_awaited
        self._doors = doors
        self._quorum = quorum
        self._timer: Cancellable | None = None
        # When the contact was missed first, ms; None while there is contact.
        self._without_since: float | None = None
        # Voters of the last round that have not answered, as "ID at HOST:PORT"; sorted.
        self._silent: list[str] = []
        # Probes of the running round that have no result yet.
        self._pending = 0
        # Whether there was contact since the start.
        self._had_contact = False
        # Whether the log was told of the loss.
        self._is_told = False
        # Why the quorum counts as lost; None while it does not.
        self.problem: str | None = None

    @property
    def silent_voters(self) -> int:
        """How many voters did not answer when the quorum was lost; 0 while it is not."""
        return 0 if self.problem is None else len(self._silent)

    def start(self) -> None:
        """Begin to look."""
        self._timer = self._doors.timer.call_later(_INTERVAL_MS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._doors.timer.call_later(_INTERVAL_MS, self._look)
        now_ms = self._doors.clock.monotonic_ms()
        if self._has_contact():
            self._end_loss()
            self._without_since = None
            self._had_contact = True
            return
        if self._without_since is None:
            self._without_since = now_ms
        if self._pending == 0:
            self._ask_voters()

    def _ask_voters(self) -> None:
        """Ask all other voters at once; the round ends when each has a result."""
        config, silent = self._quorum.config, list[str]()
        others = [each for each in self._quorum.core.voters if each.key.id != config.node_id]
        # One more, so that the round does not end before all are asked.
        self._pending = len(others) + 1
        for voter in others:
            address = voter.address(config.listener_name)
            if address is None:
                silent.append(f"{voter.key.id} (address unknown)")
                self._end_probe(silent)
                continue
            name = f"{voter.key.id} at {address.host}:{address.port}"
            probe(self._doors, address.host, address.port, self._noting(name, silent))
        self._end_probe(silent)

    def _noting(self, name: str, silent: list[str]) -> Callable[[NetworkError | None], None]:
        def note(error: NetworkError | None) -> None:
            if error is not None:
                silent.append(name)
            self._end_probe(silent)

        return note

    def _end_probe(self, silent: list[str]) -> None:
        self._pending -= 1
        if self._pending or self._timer is None:
            return
        now_ms = self._doors.clock.monotonic_ms()
        since_ms = self._without_since
        if since_ms is None or self._has_contact():
            return
        voters = self._quorum.core.voters
        answering = len(voters) - len(silent)
        # The voters of a cluster that starts need not answer at once.
        has_lost = self._had_contact and answering < voters.majority
        if has_lost or now_ms - since_ms >= _ELECTION_MS:
            self._silent = sorted(silent)
            self._begin_loss(answering)

    def _begin_loss(self, answering: int) -> None:
        voters = self._quorum.core.voters
        if self._silent:
            self.problem = (
                f"the metadata quorum is lost: no answer from voter {', '.join(self._silent)}; "
                f"{answering} of {len(voters)} voters answer, {voters.majority} are needed"
            )
        else:
            self.problem = "the metadata quorum is lost: all voters answer, and none is the leader"
        if not self._is_told and (self._had_contact or not self._is_awaited()):
            self._is_told = True
            _log.warning(
                "%s. Topics, leaders and configurations cannot change until it is back; start the "
                "voters that are down",
                self.problem[0].upper() + self.problem[1:],
            )

    def _end_loss(self) -> None:
        self.problem = None
        if self._is_told:
            self._is_told = False
            _log.info("The metadata quorum is back: leader=%d", self._leader_id())

    def _leader_id(self) -> int:
        return self._quorum.leader_and_epoch.leader_id
