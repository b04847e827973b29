"""Requests between simulated brokers that fail before they are sent."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.replication.fetcher.leader_channels import PeerChannel
from barnabas.server.peers.peer_queues import PeerQueues

if TYPE_CHECKING:
    import pytest


def fail_some_requests(patch: pytest.MonkeyPatch) -> set[str]:
    """Let each tenth request to another broker fail, except for fetches.

    Returns:
        The classes of the failed requests, as the run goes on.
    """
    failed: set[str] = set()
    real, numbers = PeerChannel.send, count(1)

    def send(self: PeerChannel, request: Any, *args: Any) -> None:
        if not isinstance(request, FetchRequest) and next(numbers) % 10 == 0:
            failed.add(type(request).__name__)
            raise ProtocolError("scripted")
        real(self, request, *args)

    patch.setattr(PeerChannel, "send", send)
    return failed


def stop_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Weaken the senders: after a failed request, they send nothing to the broker any more."""
    fail_some_requests(patch)
    patch.setattr(PeerQueues, "refuse", lambda *_: None)
