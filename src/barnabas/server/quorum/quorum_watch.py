"""Detection of a lost metadata quorum, for the log, for `/readyz` and for metrics.

A node without recent contact to a leader probes all voters. If less than a majority responds, the
quorum is lost. It is also lost if the voters respond but elect no leader for some seconds. Kafka
reports a lost quorum only in its raft-metrics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.server.quorum.reachability import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.network_error import NetworkError
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.timer import Cancellable

_log = logging.getLogger(__name__)

# Interval between checks. Contact (`CONTACT_MS`) and a probe have timeouts of 1 s each, so a loss
# is detected within 2.5 s.
_INTERVAL_MS = 250.0
# Time for responding voters to elect a leader.
_ELECTION_MS = 2_500.0


class QuorumWatch:
    """Watches the quorum through the replica of this node until it is stopped."""

    def __init__(
        self,
        dependencies: ChannelDependencies,
        quorum: RaftDriver,
        has_contact: Callable[[], bool],
        is_awaited: Callable[[], bool],
    ) -> None:
        """Args:
        dependencies: what a channel needs, for the probes of voters.
        quorum: the replica of this node.
        has_contact: returns whether this node has had recent contact with the quorum.
        is_awaited: returns whether the node still waits for its first leader. `QuorumWait` writes
            log lines in that case.
        """
        self._has_contact = has_contact
        self._is_awaited = is_awaited
        self._dependencies = dependencies
        self._quorum = quorum
        self._timer: Cancellable | None = None
        # Time (ms, monotonic) since when contact is missing. None while there is contact.
        self._without_since: float | None = None
        # Sorted silent voters when the quorum was lost, as "ID at HOST:PORT".
        self._silent: list[str] = []
        # Number of pending probes of the current round.
        self._pending = 0
        # Whether there has ever been contact. Never cleared.
        self._had_contact = False
        # Whether the current loss was logged.
        self._is_told = False
        # Description of the loss. None while the quorum works.
        self.problem: str | None = None

    @property
    def silent_voters(self) -> int:
        """Number of voters that did not respond when the quorum was lost; 0 while it works."""
        return 0 if self.problem is None else len(self._silent)

    def start(self) -> None:
        """Begin the checks."""
        self._timer = self._dependencies.timer.call_later(_INTERVAL_MS, self._look)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._dependencies.timer.call_later(_INTERVAL_MS, self._look)
        now_ms = self._dependencies.clock.monotonic_ms()
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
        """Probe all other voters in parallel. The round ends when each probe has a result."""
        config, silent = self._quorum.config, list[str]()
        others = [each for each in self._quorum.core.voters if each.key.id != config.node_id]
        # Add one, so that the round cannot end before all probes are started.
        self._pending = len(others) + 1
        for voter in others:
            address = voter.address(config.listener_name)
            if address is None:
                silent.append(f"{voter.key.id} (address unknown)")
                self._end_probe(silent)
                continue
            name = f"{voter.key.id} at {address.host}:{address.port}"
            probe(self._dependencies, address.host, address.port, self._noting(name, silent))
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
        now_ms = self._dependencies.clock.monotonic_ms()
        since_ms = self._without_since
        if since_ms is None or self._has_contact():
            return
        voters = self._quorum.core.voters
        answering = len(voters) - len(silent)
        # Before the first contact, voters of a starting cluster need not respond yet.
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
