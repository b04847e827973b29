"""A quorum of cores in virtual time, with lost, delayed and duplicate messages and node failures.

Effects are carried out as in the driver, with logs in memory that lose unsynced records. Each step
checks the invariants, whose names are those in docs/replication.md.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.config import RaftConfig
from barnabas.raft.core.messages import FetchRequest, FetchResponse, Request, RequestFailed
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.election_state import ElectionState
from barnabas.raft.voter_set import VoterHistory, VoterSet
from barnabas.runtime.rng import SeededRng

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.core.messages import Effects, Message, Response
    from barnabas.raft.listener import SnapshotId

Entry = tuple[int, str]


class MemoryLog:
    """Entries of (epoch, value), and the number of entries on disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced = 0

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return None

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return None

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
    """A replica: its disk, and its core while it runs."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.log = MemoryLog()
        self.disk = ElectionState()
        self.core: RaftCore | None = None
        # Increases with each crash and truncation, so that earlier syncs have no effect.
        self.life = 0
        # Increases with each crash, so that responses to an earlier process are dropped.
        self.process = 0


class QuorumWorld:
    """Nodes 0..n-1 (and observers above), a network and a clock."""

    def __init__(self, voters: int, seed: int, observers: int = 0) -> None:
        self.rng = SeededRng(seed)
        self.now = 0.0
        self.loss = 0.0
        self.delay_ms_max = 20
        # Pairs of nodes that cannot communicate, in either direction.
        self.cut: set[frozenset[int]] = set()
        self.voters = tuple(range(voters))
        self.nodes = [Node(each) for each in range(voters + observers)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._values = 0
        # All committed values, by offset.
        self.committed: list[Entry] = []
        # Epoch -> its leader.
        self.leaders: dict[int, int] = {}
        for node in self.nodes:
            self.start(node.id)

    # -- commands of tests -------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.core is None
        config = RaftConfig(node_id, self.voters)
        history = VoterHistory(
            VoterSet.static(
                self.voters, {each: ("host", each) for each in self.voters}, "CONTROLLER"
            )
        )
        node.core = RaftCore(config, node.log, self.rng, node.disk, history)
        self._carry_out(node, node.core.start(self.now))

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.core = None
        node.life += 1
        node.process += 1
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
        if effects.high_watermark is not None:
            self._check_committed(node, effects.high_watermark)
        for request, response in effects.responses:
            self._send_response(node, request, response)
        for destination, request in effects.requests:
            self._send_request(node, destination, request)
        if effects.control_records is not None:
            epoch = effects.control_records.epoch
            self._check_new_leader(node, epoch)
            node.log.entries.append((epoch, f"leader {node.id}"))
            self._sync_later(node)
            self._carry_out(node, core.on_appended(self.now))
        if effects.truncate_to is not None:
            self._carry_out(node, core.tick(self.now))

    def _send_request(self, source: Node, destination: int, request: Request) -> None:
        process = source.process

        def reply(response: Response) -> None:
            if source.process == process:
                self._deliver(destination, source.id, response)

        sent = replace(request, reply_to=reply)
        for delay in self._delays():
            self._later(delay, lambda: self._deliver(source.id, destination, sent))
        if self.rng.random() < self.loss / 2:
            # The connection broke, before or after the delivery of the request.
            failed = RequestFailed(request.token, is_unreachable=self.rng.random() < 0.5)
            self._later(self.rng.randint(1, 30), lambda: reply_failed(failed))

        def reply_failed(failed: RequestFailed) -> None:
            if source.process == process and source.core is not None:
                self._carry_out(source, source.core.step(self.now, failed))

    def _send_response(self, source: Node, request: Request, response: Response) -> None:
        has_records = response.error is ErrorCode.NONE and isinstance(request, FetchRequest)
        if has_records and isinstance(response, FetchResponse) and response.diverging is None:
            assert isinstance(request, FetchRequest)
            records = source.log.entries[request.fetch_offset : request.fetch_offset + 5]
            response = replace(response, records=records)
        assert request.reply_to is not None
        for delay in self._delays():
            self._later(delay, partial(request.reply_to, response))

    def _delays(self) -> list[int]:
        """Return the delay of each copy of a message."""
        copies = 0 if self.rng.random() < self.loss else 1
        copies += 1 if self.rng.random() < self.loss / 4 else 0
        return [self.rng.randint(1, self.delay_ms_max) for _ in range(copies)]

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
