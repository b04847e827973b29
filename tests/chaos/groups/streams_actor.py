"""A member of a streams group (KIP-1071) that sends heartbeats and commits, and records both.

It runs no topology. As soon as a response takes tasks away from it, it has released them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from chaos.groups.streams_history import ServedHeartbeat, StreamsHistory, TaskCommit
from differential.request import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message

GROUP = "chaos-streams"
HEARTBEAT_VERSION, COMMIT_VERSION = 1, 9
# A member that does not confirm a release in time is removed.
REBALANCE_TIMEOUT_MS = 3_000
# The member is none any more, and has lost its tasks.
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
# The coordinator has not processed the request, or its result is unknown.
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
# Sends a request in this version to the coordinator. Returns None if no response arrived.
Ask = Callable[["Message", int], Any] if TYPE_CHECKING else Any


class StreamsActor:
    """One member.

    Args:
        member_id: its id, which is also the id of its process.
        topic: the source topic.
        ask: sends a request to the coordinator.
        clock: returns the time of the history.
        history: receives heartbeats and commits.
    """

    def __init__(
        self,
        member_id: str,
        topic: str,
        ask: Ask,
        clock: Callable[[], float],
        history: StreamsHistory,
    ) -> None:
        self.member_id = member_id
        self._topic = topic
        self._ask = ask
        self._clock = clock
        self._history = history
        # From the last response; 0 before the member joins.
        self.epoch = 0
        self.tasks: frozenset[int] = frozenset()
        # The last epoch in which the member had a task that it lost.
        self.lost: dict[int, int] = {}
        # Whether a response may have been lost.
        self._is_unsure = False
        self._commits = 0

    def heartbeat(self) -> None:
        """Send a heartbeat, and take over the response."""
        asked, is_joining = self._clock(), self.epoch == 0
        response = self._ask(self._heartbeat_request(self.epoch), HEARTBEAT_VERSION)
        if response is None or response.error_code in RETRIED:
            self._is_unsure = True
            return
        if response.error_code in FENCED:
            self._lose(self.tasks)
            self.epoch = 0
            return
        assert response.error_code == ErrorCode.NONE, response
        if response.active_tasks is not None:
            found = frozenset(index for each in response.active_tasks for index in each.partitions)
        elif self._is_unsure and response.member_epoch != self.epoch:
            # The coordinator sends changed tasks only once. A member that joins gets all.
            self._lose(self.tasks)
            self.epoch = 0
            return
        else:
            found = self.tasks
        self._is_unsure = False
        self._lose(self.tasks - found)
        self.epoch, self.tasks = response.member_epoch, found
        for task in found:
            self.lost.pop(task, None)
        self._history.heartbeats.append(
            ServedHeartbeat(self._clock(), asked, self.member_id, self.epoch, found, is_joining)
        )

    def _lose(self, tasks: frozenset[int]) -> None:
        self.lost |= dict.fromkeys(tasks, self.epoch)
        self.tasks -= tasks

    def commit(self) -> None:
        """Commit an offset of each task."""
        for task in sorted(self.tasks):
            self._commit(task, self.epoch)

    def commit_lost(self) -> None:
        """Commit an offset of each task that the member has lost, with its epoch of that time."""
        for task, epoch in sorted(self.lost.items()):
            self._commit(task, epoch)

    def leave(self) -> None:
        """Leave the group. Without a response, the member ends as if it was killed."""
        response = self._ask(self._heartbeat_request(-1), HEARTBEAT_VERSION)
        self._lose(self.tasks)
        if response is not None and response.error_code == ErrorCode.NONE:
            self._history.departures[self.member_id] = self._clock()

    def _heartbeat_request(self, epoch: int) -> Message:
        own = [{"subtopology_id": "0", "partitions": sorted(self.tasks)}] if self.tasks else []
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "active_tasks": own,
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        if epoch == 0:
            subtopology = {"subtopology_id": "0", "source_topics": [self._topic]}
            values |= {
                "topology": {"epoch": 0, "subtopologies": [subtopology]},
                "process_id": self.member_id,
                "client_tags": [],
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            }
        return request(ApiKey.STREAMS_GROUP_HEARTBEAT, HEARTBEAT_VERSION, values)

    def _commit(self, task: int, epoch: int) -> None:
        self._commits += 1
        partition = {"partition_index": task, "committed_offset": self._commits}
        values = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": self._topic, "partitions": [partition]}],
        }
        asked = self._clock()
        response = self._ask(request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values), COMMIT_VERSION)
        if response is not None:
            error = response.topics[0].partitions[0].error_code
            self._history.commits.append(TaskCommit(asked, self.member_id, epoch, task, error))


def is_settled(actors: list[StreamsActor], tasks: int) -> bool:
    """Return whether each task has one owner, and all members have the same epoch."""
    owned = sorted(task for each in actors for task in each.tasks)
    return owned == list(range(tasks)) and len({each.epoch for each in actors}) == 1
