"""Quorums with changing voters (KIP-853), on simulated hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.quorum import AddRaftVoterRequest, Listener, RemoveRaftVoterRequest
from barnabas.raft.voter_set import Address, ReplicaKey, Voter, VoterSet
from simulation.quorum_hosts import CLUSTER_ID, QuorumHosts, host_name

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.raft.config import RaftConfig


class Answer:
    """Stores the response to a request."""

    def __init__(self) -> None:
        self.error: ErrorCode | None = None
        self.words: str | None = None

    def __call__(self, response: Message) -> None:
        assert self.error is None, "EveryRequestAnsweredOnce"
        answered: Any = response
        self.error = ErrorCode(answered.error_code)
        self.words = getattr(answered, "error_message", None)


class DynamicHosts(QuorumHosts):
    """The first `voters` nodes are the first voters. All nodes know each other's addresses."""

    auto_join = False

    def _prepare(self) -> None:
        self.initial_voters = VoterSet(self.voter(each) for each in self.voters)

    def voter(self, node_id: int) -> Voter:
        at = Address(host_name(node_id), self.ports[node_id])
        key = ReplicaKey(node_id, self.directory_id(node_id))
        return Voter(key, (("CONTROLLER", at),))

    def config(self, node_id: int) -> RaftConfig:
        return replace(
            super().config(node_id),
            voters=(),
            voter_endpoints={},
            bootstrap_servers=tuple((host_name(each), self.ports[each]) for each in self.ids),
            can_be_voter=True,
            auto_join=self.auto_join,
        )

    def add_voter(self, node_id: int, *, ack_when_committed: bool = True) -> Answer:
        voter = self.voter(node_id)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5_000,
            voter_id=node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=[
                Listener(name=name, host=at.host, port=at.port) for name, at in voter.endpoints
            ],
            ack_when_committed=ack_when_committed,
        )
        return self._ask_leader(request, 1)

    def remove_voter(self, node_id: int, directory_id: bytes | None = None) -> Answer:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=node_id,
            voter_directory_id=directory_id or self.directory_id(node_id),
        )
        return self._ask_leader(request, 0)

    def _ask_leader(self, request: Message, version: int) -> Answer:
        answer = Answer()
        leader = self.leader()
        if leader is not None:
            leader.rpc.serve(request, version, answer)
        return answer

    def done(self, answer: Answer) -> ErrorCode:
        """Wait a few seconds for the result of a request, and return it."""
        assert self.run_until(lambda: answer.error is not None, 10_000), self.describe()
        assert answer.error is not None
        return answer.error

    def voter_ids(self) -> set[tuple[int, ...]]:
        """Return the voters according to the running replicas."""
        return {each.driver.core.voters.ids for each in self.running()}

    def check(self) -> None:
        super().check()
        for replica in self.running():
            driver = replica.driver
            if driver.core.is_leader and driver.core.is_voter:
                assert replica.config.node_id in driver.core.voters.ids
