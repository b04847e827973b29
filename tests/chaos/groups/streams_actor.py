"""A member of a streams group (KIP-1071) that sends heartbeats and commits, and records both.

It runs no topology. As soon as a response takes tasks away from it, it has released them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from chaos.groups.streams_checker import KINDS, check_final
from chaos.groups.streams_history import (
    OwnedTasks,
    ServedHeartbeat,
    StreamsHistory,
    StreamsIdentity,
    TaskCommit,
)
from chaos.groups.streams_topology import GROUP, Task, by_subtopology, tasks_of
from chaos.verdict import Verdict
from differential.request import request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Message

HEARTBEAT_VERSION, COMMIT_VERSION = 1, 9
LEAVE_EPOCH, STATIC_LEAVE_EPOCH = -1, -2
# A member that does not confirm a release in time is removed.
REBALANCE_TIMEOUT_MS = 3_000
# The member is none any more, and has lost its tasks.
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
# The coordinator has not processed the request, or its result is unknown; or the former member with
# the instance id is still in its session.
RETRIED = (
    ErrorCode.UNRELEASED_INSTANCE_ID,
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
        identity: its ids.
        ask: sends a request to the coordinator.
        clock: returns the time of the history.
        history: has the topology, and receives heartbeats and commits.
    """

    def __init__(
        self,
        identity: StreamsIdentity,
        ask: Ask,
        clock: Callable[[], float],
        history: StreamsHistory,
    ) -> None:
        self.identity = identity
        self._ask = ask
        self._clock = clock
        self._history = history
        # From the last response; 0 before the member joins.
        self.epoch = 0
        self.tasks = OwnedTasks()
        # The last epoch in which the member had an active task that it lost.
        self.lost: dict[Task, int] = {}
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
            self._abandon()
            return
        assert response.error_code == ErrorCode.NONE, response
        found = self.tasks
        if response.active_tasks is not None:
            found = OwnedTasks(
                tasks_of(response.active_tasks),
                tasks_of(response.standby_tasks),
                tasks_of(response.warmup_tasks),
            )
        elif self._is_unsure:
            # The coordinator sends changed tasks only once. A member that joins gets all.
            self._abandon()
            return
        self._is_unsure = False
        self._take(found)
        self.epoch = response.member_epoch
        for task in found.active:
            self.lost.pop(task, None)
        self._history.heartbeats.append(
            ServedHeartbeat(self._clock(), asked, self.identity, self.epoch, found, is_joining)
        )

    def _take(self, tasks: OwnedTasks) -> None:
        """Replace the tasks, and note the lost ones with the current epoch."""
        self.lost |= dict.fromkeys(self.tasks.active - tasks.active, self.epoch)
        self.tasks = tasks

    def _abandon(self) -> None:
        """Give up all tasks, and join with the next heartbeat."""
        self._take(OwnedTasks())
        self.epoch = 0

    def commit(self) -> None:
        """Commit an offset of each task."""
        for task in sorted(self.tasks.active):
            self._commit(task, self.epoch)

    def commit_lost(self) -> None:
        """Commit an offset of each task that the member has lost, with its epoch of that time."""
        for task, epoch in sorted(self.lost.items()):
            self._commit(task, epoch)

    def leave(self) -> None:
        """Leave the group. Without a response, the member ends as if it was killed.

        A static member says that it will return, so the group keeps its tasks for a session.
        """
        epoch = LEAVE_EPOCH if self.identity.instance_id is None else STATIC_LEAVE_EPOCH
        response = self._ask(self._heartbeat_request(epoch), HEARTBEAT_VERSION)
        self._take(OwnedTasks())
        if response is not None and response.error_code == ErrorCode.NONE:
            self._history.departures[self.identity] = self._clock()

    def _heartbeat_request(self, epoch: int) -> Message:
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.identity.member_id,
            "member_epoch": epoch,
            "instance_id": self.identity.instance_id,
            "active_tasks": by_subtopology(self.tasks.active),
            "standby_tasks": by_subtopology(self.tasks.standby),
            "warmup_tasks": by_subtopology(self.tasks.warmup),
        }
        if epoch == 0:
            values |= {
                "topology": self._history.topology.request_fields(),
                "process_id": self.identity.process_id,
                "client_tags": [],
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            }
        return request(ApiKey.STREAMS_GROUP_HEARTBEAT, HEARTBEAT_VERSION, values)

    def _commit(self, task: Task, epoch: int) -> None:
        self._commits += 1
        partition = {"partition_index": task.partition, "committed_offset": self._commits}
        values = {
            "group_id": GROUP,
            "member_id": self.identity.member_id,
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": self._history.topology.topic_of(task), "partitions": [partition]}],
        }
        asked = self._clock()
        response = self._ask(request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values), COMMIT_VERSION)
        if response is not None:
            error = response.topics[0].partitions[0].error_code
            self._history.commits.append(TaskCommit(asked, self.identity, epoch, task, error))


def settle(actors: Sequence[StreamsActor], history: StreamsHistory) -> bool:
    """Record the tasks of all members as the final ones.

    Returns:
        Whether all tasks are assigned as they should, and all members have the same epoch.
    """
    history.final = {each.identity: each.tasks for each in actors}
    verdict = Verdict(KINDS)
    check_final(history, verdict)
    return verdict.is_clean and len({each.epoch for each in actors}) == 1
