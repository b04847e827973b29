"""Detection of a lost metadata quorum, for the log, for `/readyz` and for metrics.

A node without recent contact to a leader probes all voters. If less than a majority responds, the
quorum is lost. It is also lost if the voters respond but elect no leader for some seconds. Kafka
reports a lost quorum only in its raft-metrics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.server.quorum.voter_probes import find_silent_voters

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.clock import Cancellable

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
        is_first_contact_awaited: Callable[[], bool],
    ) -> None:
        """Args:
        dependencies: dependencies of the probes' channels.
        quorum: the replica of this node.
        has_contact: returns whether this node has had recent contact with the quorum.
        is_first_contact_awaited: returns whether the node still waits for its first leader.
            `QuorumWait` writes log lines in that case.
        """
        self._has_contact = has_contact
        self._is_first_contact_awaited = is_first_contact_awaited
        self._dependencies = dependencies
        self._quorum = quorum
        # Timer of the next check. None before `start` and after `stop`.
        self._timer: Cancellable | None = None
        # Time (ms, monotonic) since when contact is missing. None while there is contact.
        self._without_contact_since_ms: float | None = None
        # Silent voters when the quorum was lost, as "ID at HOST:PORT".
        self._silent: list[str] = []
        # Whether a round of probes has no result yet. There is at most one round.
        self._is_probing = False
        # Whether there has ever been contact. Never cleared.
        self._had_contact = False
        # Whether the current loss was logged. Cleared at its end.
        self._is_reported = False
        # Description of the loss. None while the quorum works.
        self.problem: str | None = None

    @property
    def silent_voters(self) -> int:
        """Number of voters that did not respond when the quorum was lost; 0 while it works."""
        return 0 if self.problem is None else len(self._silent)

    def start(self) -> None:
        """Begin the checks."""
        self._timer = self._dependencies.timer.call_later(_INTERVAL_MS, self._check)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = self._dependencies.timer.call_later(_INTERVAL_MS, self._check)
        now_ms = self._dependencies.clock.monotonic_ms()
        if self._has_contact():
            self._end_loss()
            self._without_contact_since_ms = None
            self._had_contact = True
            return
        if self._without_contact_since_ms is None:
            self._without_contact_since_ms = now_ms
        if not self._is_probing:
            self._probe_voters()

    def _probe_voters(self) -> None:
        """Probe all other voters in parallel."""
        config = self._quorum.config
        voters: dict[int, tuple[str, int] | None] = {}
        for voter in self._quorum.core.voters:
            if voter.key.id != config.node_id:
                address = voter.address(config.listener_name)
                voters[voter.key.id] = None if address is None else (address.host, address.port)
        self._is_probing = True
        find_silent_voters(self._dependencies, voters, self._on_probed)

    def _on_probed(self, silent: list[str]) -> None:
        self._is_probing = False
        if self._timer is None:
            return
        now_ms = self._dependencies.clock.monotonic_ms()
        since_ms = self._without_contact_since_ms
        if since_ms is None or self._has_contact():
            return
        voters = self._quorum.core.voters
        responding = len(voters) - len(silent)
        # Before the first contact, voters of a starting cluster need not respond yet.
        has_lost = self._had_contact and responding < voters.majority
        if has_lost or now_ms - since_ms >= _ELECTION_MS:
            self._silent = silent
            self._begin_loss(responding)

    def _begin_loss(self, responding: int) -> None:
        voters = self._quorum.core.voters
        if self._silent:
            self.problem = (
                f"the metadata quorum is lost: no response from voter {', '.join(self._silent)}; "
                f"{responding} of {len(voters)} voters respond, {voters.majority} are needed"
            )
        else:
            self.problem = (
                "the metadata quorum is lost: all voters respond, but no voter is the leader"
            )
        if not self._is_reported and (self._had_contact or not self._is_first_contact_awaited()):
            self._is_reported = True
            _log.warning(
                "%s. Topics, leaders and configurations cannot change until it is back; start the "
                "voters that are down",
                self.problem[0].upper() + self.problem[1:],
            )

    def _end_loss(self) -> None:
        self.problem = None
        if self._is_reported:
            self._is_reported = False
            _log.info("The metadata quorum is back: leader=%d", self._leader_id())

    def _leader_id(self) -> int:
        return self._quorum.core.leader_and_epoch.leader_id
