"""A quorum of cores in virtual time: messages are delayed, lost, doubled; nodes die and come back.

Every effect is carried out as the driver does it, over logs in memory that lose what was not
synced. The invariants are checked at each step, under the names of ARCHITECTURE section 5.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.raft.config import RaftConfig
from barnabas.raft.core import RaftCore
from barnabas.raft.election_state import ElectionState
from barnabas.raft.messages import FetchResponse
from barnabas.runtime.rng import SeededRng

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.effects import Effects
    from barnabas.raft.messages import Message

Entry = tuple[int, str]


class MemoryLog:
    """Entries of (epoch, value), and how many of them are on disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced = 0

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else 0

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index][0] <= epoch:
                return self.entries[index][0], index + 1
        return -1, -1

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.synced = min(self.synced, offset)


class Node:
    """One replica: what is on its disk, and the core while it runs."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.log = MemoryLog()
        self.disk = ElectionState()
        self.core: RaftCore | None = None
        # Goes up with each crash and truncation: what was under way before does not count.
        self.life = 0


class QuorumWorld:
    """Nodes 0..n-1 (and observers above), a network and a clock."""

    def __init__(self, voters: int, seed: int, observers: int = 0) -> None:
        self.rng = SeededRng(seed)
        self.now = 0.0
        self.loss = 0.0
        self.delay_ms_max = 20
        # Pairs that cannot talk, in either direction.
        self.cut: set[frozenset[int]] = set()
        self.voters = tuple(range(voters))
        self.nodes = [Node(each) for each in range(voters + observers)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._values = 0
        # What was ever committed, by offset.
        self.committed: list[Entry] = []
        # Epoch -> its leader.
        self.leaders: dict[int, int] = {}
        for node in self.nodes:
            self.start(node.id)

    # -- what a test does -------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.core is None
        config = RaftConfig(node_id, self.voters)
        node.core = RaftCore(config, node.log, self.rng, node.disk)
        self._carry_out(node, node.core.start(self.now))

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.core = None
        node.life += 1
        kept = self.rng.randint(node.log.synced, len(node.log.entries))
        del node.log.entries[kept:]
        node.log.synced = kept

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            if other.id != node_id:
                self.cut.add(frozenset((node_id, other.id)))

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0

    def leader(self) -> Node | None:
        """The running leader of the largest epoch."""
        leading = [n for n in self.nodes if n.core is not None and n.core.is_leader]
        return max(leading, key=lambda n: n.core.epoch if n.core else -1, default=None)

    def propose(self, node: Node) -> int:
        """Append a value as leader; returns its offset."""
        assert node.core is not None
        assert node.core.is_leader
        self._values += 1
        node.log.entries.append((node.core.epoch, f"value {self._values}"))
        self._sync_later(node)
        self._carry_out(node, node.core.on_appended(self.now))
        return len(node.log.entries) - 1

    def resign(self, node: Node) -> None:
        assert node.core is not None
        self._carry_out(node, node.core.resign(self.now))

    def run_for(self, duration_ms: float) -> None:
        self.run_until(lambda: False, duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 60_000) -> bool:
        end = self.now + limit_ms
        while not condition():
            due = min((n.core.next_deadline() for n in self.nodes if n.core), default=end)
            at = max(self.now, min(due, self._events[0][0] if self._events else end, end))
            self.now = at
            if at >= end:
                return condition()
            if self._events and self._events[0][0] <= at:
                heapq.heappop(self._events)[2]()
                continue
            for node in self.nodes:
                if node.core is not None and node.core.next_deadline() <= at:
                    self._carry_out(node, node.core.tick(at))
        return True

    # -- carrying out effects ---------------------------------------------------------------------

    def _carry_out(self, node: Node, effects: Effects) -> None:
        core = node.core
        assert core is not None
        if effects.persist is not None:
            node.disk = effects.persist
        if effects.truncate_to is not None:
            assert effects.truncate_to >= core.high_watermark
            node.log.truncate_to(effects.truncate_to)
            node.life += 1
        if effects.append is not None:
            assert isinstance(effects.append, list)
            node.log.entries.extend(effects.append)
            self._sync_later(node)
        if effects.leader_change is not None:
            change = effects.leader_change
            self._check_new_leader(node, change.epoch)
            node.log.entries.append((change.epoch, f"leader {node.id}"))
            self._sync_later(node)
        if effects.high_watermark is not None:
            self._check_committed(node, effects.high_watermark)
        for destination, message in effects.messages:
            self._send(node, destination, message)
        if effects.leader_change is not None:
            self._carry_out(node, core.on_appended(self.now))

    def _send(self, source: Node, destination: int, message: Message) -> None:
        if isinstance(message, FetchResponse) and not (message.refusal or message.diverging):
            records = source.log.entries[message.fetch_offset : message.fetch_offset + 5]
            message = replace(message, records=records)
        copies = 0 if self.rng.random() < self.loss else 1
        copies += 1 if self.rng.random() < self.loss / 4 else 0
        for _ in range(copies):
            delay = self.rng.randint(1, self.delay_ms_max)
            self._later(delay, lambda: self._deliver(source.id, destination, message))

    def _deliver(self, source: int, destination: int, message: Message) -> None:
        node = self.nodes[destination]
        if node.core is None or frozenset((source, destination)) in self.cut:
            return
        self._carry_out(node, node.core.step(self.now, message))

    def _sync_later(self, node: Node) -> None:
        end, life = len(node.log.entries), node.life

        def synced() -> None:
            if node.core is not None and node.life == life:
                node.log.synced = max(node.log.synced, end)
                self._carry_out(node, node.core.on_synced(self.now, end))

        self._later(self.rng.randint(1, 10), synced)

    def _later(self, delay_ms: float, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay_ms, self._sequence, event))

    # -- invariants -------------------------------------------------------------------------------

    def _check_new_leader(self, node: Node, epoch: int) -> None:
        assert self.leaders.setdefault(epoch, node.id) == node.id, "OneLeaderPerEpoch"
        assert node.log.entries[: len(self.committed)] == self.committed, "CommittedNeverLost"

    def _check_committed(self, node: Node, high_watermark: int) -> None:
        assert high_watermark <= node.log.synced or node.id not in self.voters
        entries = node.log.entries[:high_watermark]
        assert len(entries) == high_watermark
        common = min(len(entries), len(self.committed))
        assert entries[:common] == self.committed[:common], "NoOffsetTwice"
        self.committed.extend(entries[common:])
