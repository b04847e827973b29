"""A quorum whose commands and transcript are text: the tutorials of `test_tutorial.py`.

Only commands cause events. A command gives one input, and the transcript shows its effects on each
node. Messages are pending until a command delivers them, and the clock advances only by commands.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.config import RaftConfig
from barnabas.raft.core.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RequestFailed,
    SupportedVersionsRequest,
    SupportedVersionsResponse,
)
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.core.roles import Leader
from barnabas.raft.election_state import ElectionState
from barnabas.raft.voter_set import Address, ReplicaKey, Voter, VoterHistory, VoterSet
from barnabas.runtime.rng import SeededRng
from unit.raft.tutorial_log import Entry, TutorialLog
from unit.raft.tutorial_words import leader_text, offset_text, request_text, response_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.core.messages import ControlRecords, Effects, Message, Request, Response

LISTENER = "CONTROLLER"
# Limit for messages at one time; more messages mean an endless exchange.
MESSAGES_MAX = 300
SNAPSHOT_CONTENT = b"snapshot"


def voter(node_id: int) -> Voter:
    at = Address(f"host-{node_id}", 9093)
    return Voter(ReplicaKey(node_id, bytes([node_id] * 16)), ((LISTENER, at),))


class TutorialRng(SeededRng):
    """Returns the N-th tenth of each range for node N, so that the transcripts are predictable."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id)
        self._node_id = node_id
        self._choices = 0

    def randint(self, low: int, high: int) -> int:
        if high - low < 10:
            # For a choice between peers: return them in turn.
            self._choices += 1
            return low + self._choices % (high - low + 1)
        return low + (high - low) * min(self._node_id, 10) // 10


class Envelope(NamedTuple):
    """A message in transit."""

    source: int
    destination: int
    text: str
    message: Message
    # The process that sent the request. A response to an earlier process is dropped.
    process: int


class TutorialNode:
    """One replica: its disk, and its core while it runs."""

    def __init__(self, node_id: int, history: VoterHistory) -> None:
        self.id = node_id
        self.log = TutorialLog()
        self.disk = ElectionState()
        self.history = history
        self.core: RaftCore | None = None
        # Increases with each start.
        self.process = 0

    @property
    def role(self) -> str:
        assert self.core is not None
        return type(self.core.role).__name__

    def state(self) -> str:
        """Return a summary of the node's state."""
        if self.core is None:
            return f"down, log {self.log}"
        core = self.core
        leader = leader_text(core.leader_and_epoch.leader_id)
        committed = offset_text(core.high_watermark)
        kind = "" if core.is_voter else " (observer)"
        return (
            f"{self.role}{kind}, epoch {core.epoch}, leader {leader}, "
            f"high watermark {committed}, log {self.log}"
        )


class TutorialCluster:
    """Nodes, a clock and messages in transit. Each command adds its output to `lines`."""

    def __init__(self, voters: list[int], observers: list[int], *, dynamic: bool) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        self.nodes: dict[int, TutorialNode] = {}
        # Pairs of nodes that cannot communicate.
        self.cut: set[frozenset[int]] = set()
        self._voters = voters
        self._dynamic = dynamic
        self._pending: list[Envelope] = []
        # (sender, token) of delivered requests without a response yet, and their receiver.
        self._open_requests: dict[tuple[int, int], int] = {}
        for node_id in (*voters, *observers):
            self.nodes[node_id] = TutorialNode(node_id, self._history())

    def _history(self) -> VoterHistory:
        if not self._dynamic:
            addresses = {each: (f"host-{each}", 9093) for each in self._voters}
            return VoterHistory(VoterSet.static(self._voters, addresses, LISTENER))
        history = VoterHistory(VoterSet([]))
        history.add_kraft_version(-1, 1)
        history.add_voters(-1, VoterSet(voter(each) for each in self._voters))
        return history

    # -- commands ----------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.core is None, f"{node_id} runs"
        node.process += 1
        key = voter(node_id).key
        config = RaftConfig(
            node_id,
            () if self._dynamic else tuple(self._voters),
            bootstrap_servers=(),
            directory_id=key.directory_id if self._dynamic else bytes(16),
            advertised={LISTENER: (f"host-{node_id}", 9093)},
        )
        node.core = RaftCore(config, node.log, TutorialRng(node_id), node.disk, node.history)
        effects = node.core.start(self.now)
        self._print(f"{node_id} starts as {node.role} in epoch {node.core.epoch}")
        self._carry_out(node, effects)

    def crash(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.core = None
        self._drop_from(node_id)
        lost = node.log.end_offset - node.log.synced
        node.log.truncate_to(node.log.synced)
        self._print(f"{node_id} is down" + (f"; unsynced records lost: {lost}" if lost else ""))
        for (source, token), destination in list(self._open_requests.items()):
            if destination == node_id or source == node_id:
                del self._open_requests[source, token]
            if destination == node_id and frozenset((source, node_id)) not in self.cut:
                self._print(f"the connection of {source} to {node_id} breaks")
                self._fail(source, token)

    def campaign(self, node_id: int) -> None:
        """Move the clock to the node's next election deadline, and let only this node act."""
        node = self.nodes[node_id]
        core = node.core
        assert core is not None
        deadlines = ("lost_deadline", "fetch_deadline", "election_deadline")
        due = min(getattr(core.role, each, float("inf")) for each in deadlines)
        assert due < float("inf"), f"{node_id} has no election timer: {node.state()}"
        self.now = max(self.now, due)
        self._drop_from(node_id)
        self._print(f"{self.now:.0f} ms: the election timer of {node_id} fires")
        self._act(node, core.tick)

    def advance(self, duration_ms: float) -> None:
        self.now += duration_ms
        self._print(f"{self.now:.0f} ms")
        for node in self.nodes.values():
            if node.core is not None:
                self._act(node, node.core.tick)

    def let_pass(self, duration_ms: int) -> None:
        """Advance the clock in steps of 100 ms, and deliver all messages after each step."""
        for _ in range(0, duration_ms, 100):
            self.advance(100)
            self.stabilize()

    def propose(self, node_id: int, *values: str) -> None:
        node = self.nodes[node_id]
        core = node.core
        assert core is not None
        assert core.is_leader, f"{node_id} does not lead"
        node.log.entries.extend(Entry(core.epoch, value) for value in values)
        self._print(f"{node_id} appends {' '.join(values)}; its log ends at {node.log.end_offset}")
        self._act(node, core.on_appended)

    def resign(self, node_id: int) -> None:
        core = self.nodes[node_id].core
        assert core is not None
        self._act(self.nodes[node_id], core.resign)

    def request(self, node_id: int, request: Request) -> None:
        """Send a request of a client to a node."""
        node = self.nodes[node_id]
        core = node.core
        assert core is not None
        self._print(f"client -> {node_id}: {request_text(request)}")
        sent = replace(request, reply_to=lambda _: None)
        self._act(node, lambda now_ms: core.step(now_ms, sent))

    def add_voter(self, node_id: int, added: int) -> None:
        self.request(node_id, AddVoterRequest(voter(added)))

    def remove_voter(self, node_id: int, removed: int) -> None:
        self.request(node_id, RemoveVoterRequest(voter(removed).key))

    def snapshot(self, node_id: int) -> None:
        node = self.nodes[node_id]
        assert node.core is not None
        taken = node.log.take_snapshot(node.core.high_watermark)
        self._print(f"{node_id} writes a snapshot of {taken.end_offset} records and deletes them")

    def isolate(self, node_id: int) -> None:
        self.cut |= {frozenset((node_id, other)) for other in self.nodes if other != node_id}
        self._print(f"no message passes between {node_id} and the others")

    def heal(self) -> None:
        self.cut.clear()
        self._print("all messages pass again")

    def status(self) -> None:
        for node in self.nodes.values():
            self._print(f"{node.id}: {node.state()}")

    def deliver(self, destination: int | None = None) -> None:
        """Deliver the messages in transit, but not the messages that they cause."""
        now, self._pending = self._pending, []
        for each in now:
            if destination is None or each.destination == destination:
                self._deliver(each)
            else:
                self._pending.append(each)

    def stabilize(self) -> None:
        """Sync all logs and deliver messages until none is left, without advancing the clock."""
        for _ in range(MESSAGES_MAX):
            if not (self._sync_one() or self._deliver_one()):
                return
        raise AssertionError("the nodes do not stop sending messages")

    # -- messages ----------------------------------------------------------------------------------

    def _deliver_one(self) -> bool:
        if not self._pending:
            return False
        self._deliver(self._pending.pop(0))
        return True

    def _drop_from(self, node_id: int) -> None:
        """Drop the node's requests of its earlier role, whose responses it would ignore."""
        self._pending = [each for each in self._pending if each.source != node_id]

    def _deliver(self, envelope: Envelope) -> None:
        source, destination, text, message, process = envelope
        node = self.nodes[destination]
        core = node.core
        line = f"{source} -> {destination}: {text}"
        if frozenset((source, destination)) in self.cut:
            self._print(f"{line} (lost)")
            return
        if core is None:
            self._print(f"{line} (connection refused)")
            self._refuse(envelope)
            return
        is_response = hasattr(message, "leader_id") and hasattr(message, "error")
        if is_response and node.process != process:
            return
        self._print(line)
        if not is_response:
            self._open_requests[source, getattr(message, "token", 0)] = destination
        if isinstance(message, SupportedVersionsRequest):
            response = SupportedVersionsResponse(token=message.token, max_version=1)
            self._send_response(node, source, self.nodes[source].process, message, response)
            return
        self._act(node, lambda now_ms: core.step(now_ms, message))

    def _refuse(self, envelope: Envelope) -> None:
        if not hasattr(envelope.message, "error"):
            self._fail(envelope.source, getattr(envelope.message, "token", 0))

    def _fail(self, sender_id: int, token: int) -> None:
        sender = self.nodes[sender_id]
        core = sender.core
        if core is not None:
            failed = RequestFailed(token, is_unreachable=True)
            self._act(sender, lambda now_ms: core.step(now_ms, failed))

    def _sync_one(self) -> bool:
        for node in self.nodes.values():
            core, end = node.core, node.log.end_offset
            if core is not None and node.log.synced < end:
                node.log.synced = end
                self._act(node, partial(_synced, core, end))
                return True
        return False

    def _send_response(
        self, node: TutorialNode, source: int, process: int, request: Request, response: Response
    ) -> None:
        is_good = response.error is ErrorCode.NONE
        if isinstance(request, FetchRequest) and isinstance(response, FetchResponse) and is_good:
            if response.diverging is None and response.snapshot_id is None:
                records = node.log.read(request.fetch_offset)
                response = replace(response, records=records)
        elif isinstance(request, FetchSnapshotRequest) and is_good:
            assert isinstance(response, FetchSnapshotResponse)
            size = len(SNAPSHOT_CONTENT)
            response = replace(response, size=size, content=SNAPSHOT_CONTENT)
        text = response_text(request, response)
        self._open_requests.pop((source, request.token), None)
        self._pending.append(Envelope(node.id, source, text, response, process))

    # -- effects -----------------------------------------------------------------------------------

    def _act(self, node: TutorialNode, act: Callable[[float], Effects]) -> None:
        """Give a node an input, show the changes of its state, and carry out the effects."""
        core = node.core
        assert core is not None
        role, epoch = node.role, core.epoch
        effects = act(self.now)
        if (node.role, core.epoch) != (role, epoch):
            self._print(f"  {node.id} becomes {node.role} in epoch {core.epoch}")
        self._carry_out(node, effects)

    def _carry_out(self, node: TutorialNode, effects: Effects) -> None:
        core = node.core
        assert core is not None
        if effects.persist is not None:
            self._persist(node, effects.persist)
        if effects.truncate_to is not None:
            self._print(f"  {node.id} truncates its log to {effects.truncate_to}")
            node.log.truncate_to(effects.truncate_to)
            node.history.truncate_to(effects.truncate_to)
        if effects.append is not None:
            assert isinstance(effects.append, list)
            self._append(node, effects.append)
        if effects.snapshot_slice is not None:
            self._install(node, effects)
        if effects.high_watermark is not None:
            self._print(f"  {node.id} moves its high watermark to {effects.high_watermark}")
        for request, response in effects.responses:
            if request.reply_to is None:
                continue
            self._respond(node, request, response)
        for destination, request in effects.requests:
            sent = replace(request, reply_to=partial(_reply_to, node.id, node.process))
            text = request_text(request)
            self._pending.append(Envelope(node.id, destination, text, sent, node.process))
        if effects.control_records is not None:
            self._append_control(node, effects.control_records)
        if effects.truncate_to is not None:
            self._act(node, core.tick)

    def _persist(self, node: TutorialNode, state: ElectionState) -> None:
        node.disk = state
        vote = f", vote for {state.voted_id}" if state.voted_id >= 0 else ""
        leader = f", leader {state.leader_id}" if state.leader_id >= 0 else ""
        self._print(f"  {node.id} stores epoch {state.epoch}{vote}{leader}")

    def _respond(self, node: TutorialNode, request: Request, response: Response) -> None:
        found = getattr(request.reply_to, "args", None)
        if found is None:
            self._print(f"  {node.id} -> client: {response_text(request, response)}")
        else:
            self._send_response(node, *found, request, response)

    def _append(self, node: TutorialNode, records: list[Entry]) -> None:
        core = node.core
        assert core is not None
        offset = node.log.end_offset
        node.log.entries.extend(records)
        self._print(f"  {node.id} appends {' '.join(map(str, records))} at offset {offset}")
        for index, record in enumerate(records):
            if record.voters is not None:
                node.history.add_voters(offset + index, record.voters)
                self._act(node, core.on_voters_changed)

    def _append_control(self, node: TutorialNode, control: ControlRecords) -> None:
        core = node.core
        assert core is not None
        records = []
        if control.leader_change is not None:
            records.append(Entry(control.epoch, f"leader-{control.leader_change.leader_id}"))
        if control.kraft_version is not None:
            records.append(Entry(control.epoch, f"kraft.version-{control.kraft_version}"))
        if control.voters is not None:
            ids = ",".join(map(str, control.voters.ids))
            records.append(Entry(control.epoch, f"voters-{ids}", control.voters))
        self._append(node, records)
        self._act(node, core.on_appended)

    def _install(self, node: TutorialNode, effects: Effects) -> None:
        core, part = node.core, effects.snapshot_slice
        assert core is not None
        assert part is not None
        assert part.is_last
        node.log.install(part.id)
        self._print(f"  {node.id} replaces its log by the snapshot of {part.id.end_offset} records")
        self._act(node, lambda now_ms: core.on_snapshot_installed(now_ms, part.id))

    def _print(self, line: str) -> None:
        self.lines.append(line)

    def leader(self) -> int | None:
        """Return the node that leads the largest epoch."""
        found = [
            (node.core.epoch, node.id)
            for node in self.nodes.values()
            if node.core is not None and isinstance(node.core.role, Leader)
        ]
        return max(found)[1] if found else None


def _reply_to(source: int, process: int, _: Response) -> None:
    """Mark a request with its sender. The cluster reads the arguments of the partial."""
    raise AssertionError(f"{source} of {process} receives responses from the cluster")


def _synced(core: RaftCore, end_offset: int, now_ms: float) -> Effects:
    return core.on_synced(now_ms, end_offset)
