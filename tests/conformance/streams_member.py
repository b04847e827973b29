"""A member of a streams group (KIP-1071) that sends heartbeats only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import barnabas
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.messages.streams_groups import StreamsGroupHeartbeatResponse
from conformance.raw_client import RawClient
from differential.request import request
from waiting import eventually

MEMBER = "a-member"
PROCESS = "a-process"


class StreamsMember:
    """The only member of a group of one broker; its topology reads one topic.

    Args:
        bootstrap: The address of the broker.
        admin: A client of the broker.
        group: The id of the group.
        topic: The source topic.
        changelogs: The changelog topics of the only subtopology.
    """

    def __init__(
        self,
        bootstrap: str,
        admin: barnabas.Admin,
        group: str,
        topic: str,
        changelogs: Sequence[str] = (),
    ) -> None:
        self._admin = admin
        self._raw = RawClient(bootstrap)
        self._group = group
        self._subtopology: dict[str, Any] = {"subtopology_id": "0", "source_topics": [topic]}
        if changelogs:
            topics = [{"name": name} for name in changelogs]
            self._subtopology["state_changelog_topics"] = topics
        self._epoch = 0

    def _beat(self, epoch: int) -> StreamsGroupHeartbeatResponse:
        values: dict[str, Any] = {
            "group_id": self._group,
            "member_id": MEMBER,
            "member_epoch": epoch,
        }
        if epoch == 0:
            values |= {
                "topology": {"epoch": 0, "subtopologies": [self._subtopology]},
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
                "process_id": PROCESS,
                "client_tags": [],
                "rebalance_timeout_ms": 60_000,
            }
        response = self._raw.ask(request(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, values), 1)
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        return response

    def join(self) -> None:
        """Join, and wait for all tasks."""
        # A search for the coordinator creates the offsets topic.
        eventually(lambda: bool(self._admin.coordinators([self._group])) and self._has_tasks())

    def _has_tasks(self) -> bool:
        response = self._beat(self._epoch)
        if response.error_code:
            # The coordinator does not have the topic yet, or has not loaded the group.
            return False
        self._epoch = response.member_epoch
        return bool(response.active_tasks)

    def leave(self) -> None:
        """Leave the group, and close the connection."""
        assert self._beat(-1).error_code == 0
        self._raw.close()
