"""Log lines about the reason why a node is not ready."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.server.quorum.voter_probes import find_silent_voters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.network.channel import ChannelDependencies
    from barnabas.runtime.clock import Cancellable

_log = logging.getLogger(__name__)

# Delay of the first check after the start, and between checks.
_FIRST_MS = 2_000.0
_INTERVAL_MS = 10_000.0
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
        """Args:
        dependencies: dependencies of the probes' channels.
        voters: addresses of the other voters by node id.
        has_controller: returns whether the active controller is known and, for a broker, connected.
        broker_awaits: returns the condition that the broker waits for if there is a controller.
        None without a
            broker.
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
        self._timer: Cancellable | None = dependencies.timer.call_later(_FIRST_MS, self._check)

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
        self._timer = self._dependencies.timer.call_later(_INTERVAL_MS, self._check)
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
