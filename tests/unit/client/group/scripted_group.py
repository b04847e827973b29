"""A cluster whose only coordinator has scripted responses, in virtual time.

By default, the group has one member: the coordinator gives it an id, makes it the leader, and
returns its assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.connections import Call
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.connections.metadata_cache import (
    MetadataCache,
    NodeInfo,
    PartitionInfo,
    TopicInfo,
)
from barnabas.client.connections.versions import CLIENT_VERSIONS
from barnabas.client.errors import ClientError, DisconnectedError
from barnabas.client.retries import Backoff, RetryTimer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from barnabas.protocol.messages.metadata import FindCoordinatorResponse
from barnabas.sim.world import sim_runtime

ANSWER_MS = 2.0
NODE = 1
# An entry of a script: an error code, a connection error, a response, or None for no response.
Scripted = ErrorCode | ClientError | Any | None
GONE = DisconnectedError("h:1", "gone")


class ScriptedGroup:
    """Replaces `Cluster`; `requests` has the sent requests, in order."""

    def __init__(self, **keys: object) -> None:
        self.world, self.runtime = sim_runtime(1)
        given = {"bootstrap.servers": "h:1", "group.id": "g", **keys}
        self.config = ClientConfig.parse(given)
        self.retry_backoff = Backoff(self.runtime.rng, 100, 1000)
        self.tracked: set[str] = set()
        self.metadata = MetadataCache()
        self.metadata.nodes = {NODE: NodeInfo(NODE, "h", 1)}
        self.set_partitions("t", 4)
        self.coordinators = Coordinators(self)  # type: ignore[arg-type]
        self.requests: list[Any] = []
        self.times: list[float] = []
        # Whether each request used the coordinator connection.
        self.apart: list[bool] = []
        self.script: dict[ApiKey, list[Scripted]] = {}
        self.refreshes = 0
        self.updates_requested = 0
        self.on_refresh: list[Callable[[], None]] = []
        # The highest version that the broker supports, by API.
        self.versions: dict[ApiKey, int] = {}
        self.generation = 0
        self._assignment = b""

    # Queries of tests

    def sent(self, api_key: ApiKey) -> list[Any]:
        """Return the requests of one API, oldest first."""
        return [request for request in self.requests if request.__api_key__ == api_key]

    def set_partitions(self, topic: str, count: int) -> None:
        infos = {number: PartitionInfo(number, NODE, 4, (NODE,)) for number in range(count)}
        self.metadata.topics[topic] = TopicInfo(topic, topic.encode().ljust(16), False, infos)
        self.metadata.generation += 1

    # Cluster

    def retry_timer(self, timeout_ms: float = inf) -> RetryTimer:
        return RetryTimer(self.runtime, self.retry_backoff, timeout_ms)

    def request_update(self) -> None:
        self.updates_requested += 1

    def call(self, node_id: int, call: Call, *, apart: bool = False) -> None:
        version = min(CLIENT_VERSIONS[call.api_key][1], self.versions.get(call.api_key, 99))
        try:
            request = call.build(version)
            request = decode(type(request), version, encode_bytes(request, version))
        except ValueError as error:
            call.on_done(None, ClientError(str(error)))
            return
        self.requests.append(request)
        self.times.append(self.world.scheduler.now_ms)
        self.apart.append(apart)
        queue = self.script.get(call.api_key) or [...]
        scripted = queue.pop(0)
        if scripted is None:
            return
        if isinstance(scripted, ClientError):
            self.runtime.timer.call_later(ANSWER_MS, lambda: call.on_done(None, scripted))
            return
        response = self._answer(request) if scripted is ... else scripted
        if isinstance(scripted, ErrorCode):
            response = self._refusal(request, scripted)
        self.runtime.timer.call_later(ANSWER_MS, lambda: call.on_done(response, None))

    def call_coordinator(self, node_id: int, call: Call) -> None:
        self.call(node_id, call, apart=True)

    def refresh(self, _topics: object, on_done: Callable[[None, ClientError | None], None]) -> None:
        self.refreshes += 1
        if self.on_refresh:
            self.on_refresh.pop(0)()
        on_done(None, None)

    # The coordinator

    def _refusal(self, request: Any, code: ErrorCode) -> Any:
        if request.__api_key__ == ApiKey.FIND_COORDINATOR:
            return FindCoordinatorResponse(
                error_code=code, error_message=None, node_id=-1, host="", port=-1
            )
        response = self._answer(request)
        response.error_code = code
        return response

    def _answer(self, request: Any) -> Any:
        match request.__api_key__:
            case ApiKey.FIND_COORDINATOR:
                return FindCoordinatorResponse(
                    error_code=0, error_message=None, node_id=NODE, host="h", port=1
                )
            case ApiKey.JOIN_GROUP:
                return self.joined(request)
            case ApiKey.SYNC_GROUP:
                if request.assignments:
                    self._assignment = bytes(request.assignments[0].assignment)
                return SyncGroupResponse(error_code=0, assignment=self._assignment)
            case ApiKey.HEARTBEAT:
                return HeartbeatResponse(error_code=0)
            case _:
                assert request.__api_key__ == ApiKey.LEAVE_GROUP, request
                return LeaveGroupResponse(error_code=0, members=[])

    def joined(self, request: Any, **changes: object) -> JoinGroupResponse:
        """Return the response to the JoinGroup of the only member."""
        self.generation += 1
        member_id = request.member_id or f"member-{self.generation}"
        metadata = bytes(request.protocols[0].metadata)
        members = [JoinGroupResponseMember(member_id=member_id, metadata=metadata)]
        given: dict[str, Any] = {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": request.protocols[0].name,
            "leader": member_id,
            "member_id": member_id,
            "members": members,
        }
        return JoinGroupResponse(**given | changes)
