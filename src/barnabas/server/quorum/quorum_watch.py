"""Detection of a missing metadata quorum, for the log, for `/readyz` and for metrics.

A node without recent contact to a leader probes all voters. If less than a majority responds, the
quorum is lost. It is also lost if the voters respond but elect no leader for some seconds. Kafka
reports a lost quorum only in its raft-metrics. A node that is not ready logs the reason.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.server.quorum.probes import find_silent_voters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        """Create the quorum watch.

        Args:
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


# Delay of the first check after the start, and between checks.
_FIRST_LINE_MS = 2_000.0
_LINES_MS = 10_000.0
_WITHOUT_VOTE = (
    "This voter's data directory was empty at its first start, so it has no vote until it has "
    "heard of all voters of a new cluster, or has copied the metadata log of an old cluster. If "
    "former directories are lost, and the other voters cannot elect a leader without them, empty "
    "the directory of one such voter again and format it by `barnabas format`. The voter then has "
    "its vote immediately, but data that only the lost directories had is lost"
)


class QuorumWait:
    """Logs the reason at intervals, until `finish` is called."""

    def __init__(
        self,
        dependencies: ChannelDependencies,
        voters: Mapping[int, tuple[str, int]],
        has_controller: Callable[[], bool],
        broker_awaits: Callable[[], str] | None,
        has_vote: Callable[[], bool] = lambda: True,
        refusal: Callable[[], str] = lambda: "",
    ) -> None:
        """Begin to log the reason at intervals.

        Args:
            dependencies: dependencies of the probes' channels.
            voters: addresses of the other voters by node id.
            has_controller: returns whether the active controller is known and, for a broker,
                connected.
            broker_awaits: returns the condition that the broker waits for if there is a controller.
                None without a broker.
            has_vote: returns whether this node, if it is a voter, takes part in elections.
            refusal: returns why other nodes refuse the requests of this node; empty if they do not.
        """
        self._has_vote = has_vote
        self._refusal = refusal
        self._broker_awaits = broker_awaits
        self._dependencies = dependencies
        self._voters = voters
        self._has_controller = has_controller
        # Timer of the next check. None after `finish`.
        self._timer: Cancellable | None = dependencies.timer.call_later(_FIRST_LINE_MS, self._check)

    @property
    def is_waiting(self) -> bool:
        """Whether the node still waits."""
        return self._timer is not None

    def finish(self) -> None:
        """Stop the checks, because the node is ready or stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = self._dependencies.timer.call_later(_LINES_MS, self._check)
        if self._has_controller():
            if self._broker_awaits is None:
                self.finish()
            else:
                without_vote = "" if self._has_vote() else f". {_WITHOUT_VOTE}"
                _log.warning("Not ready yet: %s%s", self._broker_awaits(), without_vote)
            return
        find_silent_voters(self._dependencies, self._voters, self._report)

    def _report(self, silent: list[str]) -> None:
        if self._timer is None:
            return
        if refusal := self._refusal():
            _log.warning("Waiting for the metadata quorum: %s", refusal)
        elif not self._has_vote():
            _log.warning(
                "Waiting for the metadata quorum: %s. %s",
                f"no response from voter {', '.join(silent)}" if silent else "all voters respond",
                _WITHOUT_VOTE,
            )
        elif silent:
            _log.warning(
                "Waiting for the metadata quorum: no response from voter %s. A majority of the "
                "voters has to run",
                ", ".join(silent),
            )
        else:
            _log.warning("Waiting for the metadata quorum to elect a leader; all voters respond")
