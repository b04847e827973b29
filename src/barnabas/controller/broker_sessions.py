"""When the controller last heard of each broker (Kafka's BrokerHeartbeatTracker)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

# A timer for a deadline may go off a rounding error before it.
_SLACK_MS = 1.0


class BrokerSessions:
    """Known to the active controller alone, and begun anew by the next one."""

    __slots__ = ("_doubtful", "_heard", "_own_id", "_timeout_ms")

    def __init__(self, timeout_ms: int, own_id: int) -> None:
        self._timeout_ms = timeout_ms
        # The broker in this process, if it has one: it lives as long as this controller does.
        self._own_id = own_id
        # Monotonic ms of the last heartbeat, by broker id; gone when the session is over.
        self._heard: dict[int, float] = {}
        # Brokers that may be dead although they are not fenced yet; a heartbeat takes one out.
        self._doubtful: set[int] = set()

    @property
    def doubtful(self) -> AbstractSet[int]:
        """Brokers that may be dead although they are not fenced yet: the set itself, which changes.

        A broker is in it while this controller has not heard of it since it became active, while
        its heartbeat connection is gone, and when it was silent for half a session at the time when
        another broker's session ended.
        """
        return self._doubtful

    def begin(self, broker_ids: Iterable[int], now_ms: float) -> None:
        """This controller has become active: each of these gets a full session."""
        self._heard = dict.fromkeys(broker_ids, now_ms)
        self._doubtful.clear()
        self._doubtful.update(self._heard)

    def touch(self, broker_id: int, now_ms: float) -> None:
        """The broker was heard of."""
        self._heard[broker_id] = now_ms
        self._doubtful.discard(broker_id)

    def doubt(self, broker_id: int) -> None:
        """The broker may be dead; its next heartbeat says that it is not."""
        self._doubtful.add(broker_id)

    def doubt_silent(self, now_ms: float) -> None:
        """Doubt every other broker that was silent for half a session or more."""
        for broker_id, heard in self._heard.items():
            if heard + self._timeout_ms / 2 <= now_ms and broker_id != self._own_id:
                self._doubtful.add(broker_id)

    def end(self, broker_id: int) -> None:
        """The broker is gone, or a new life of it has not been heard of yet."""
        self._heard.pop(broker_id, None)

    def is_valid(self, broker_id: int, now_ms: float) -> bool:
        """Whether another process with that id may be alive."""
        heard = self._heard.get(broker_id)
        if heard is None or broker_id == self._own_id:
            # What had the own id before is dead: this process has its data directories.
            return False
        return now_ms < heard + self._timeout_ms

    def is_own(self, broker_id: int) -> bool:
        """Whether that is the broker in this process."""
        return broker_id == self._own_id

    def expired(self, now_ms: float) -> list[int]:
        """Brokers whose sessions are over, the one that was silent longest first."""
        silent = [
            (heard, broker_id)
            for broker_id, heard in self._heard.items()
            if heard + self._timeout_ms <= now_ms + _SLACK_MS and broker_id != self._own_id
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_deadline(self) -> float | None:
        """When the next session of another broker ends; None if there is none."""
        heard = [at for broker_id, at in self._heard.items() if broker_id != self._own_id]
        return min(heard) + self._timeout_ms if heard else None

    def renew(self, now_ms: float) -> None:
        """This process did not listen, nobody knows for how long: everybody gets a full session."""
        self._heard = dict.fromkeys(self._heard, now_ms)
