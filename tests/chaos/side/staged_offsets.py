"""Side load: offsets of transactions beside commits, OffsetDelete, DeleteGroups and expiry.

Each round has a group of its own and some operations in a random order. The model knows their
result. A round with an operation whose result is unknown is not judged. The offsets of all judged
groups must not change any more, whatever happens to their coordinators.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import ClassVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from barnabas.protocol.messages.groups import DeleteGroupsRequest
from barnabas.protocol.schema import Message
from chaos.cluster_view import NoAnswerError
from chaos.resources import Leftovers
from chaos.side.side_load import SideLoad, SideOptions, TopicShape
from chaos.side.staged_model import StagedModel
from chaos.transactional.clients import AbortableError, FatalError, OwnProducer
from chaos.verdict import Verdict

TOPIC = "chaos-staged"
# The retention of an offset that shall expire, and the time in which it does.
RETENTION_MS, EXPIRED_S = 500, 2.0
PAUSE_S = 0.2
STEPS = 4
# How long a coordinator may return another offset than the model, while it loads its log.
LATE_S = 20.0


class UnknownResultError(Exception):
    """An operation may or may not have been done."""


class StagedOffsetsLoad(SideLoad):
    """One client with many groups."""

    name = "staged offsets"
    topics: ClassVar = {TOPIC: TopicShape(1)}
    settings: ClassVar = {"offsets.retention.check.interval.ms": "500"}
    KINDS = ("staged offset",)

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._producer: OwnProducer | None = None
        # Expected offsets of finished groups, with the operations that led to them.
        self.expected: dict[str, tuple[int, str]] = {}
        self._rounds = 0

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            self._rounds += 1
            group = f"staged-{self.options.seed}-{self._rounds}"
            try:
                model, history = self._round(group)
            except (
                UnknownResultError,
                AbortableError,
                FatalError,
                NoAnswerError,
                OSError,
            ) as error:
                self.options.errors.add(f"staged offsets: {type(error).__name__}")
                self._close_producer()
            else:
                self.expected[group] = (model.committed, history)
        self._close_producer()

    def _close_producer(self) -> None:
        """Close the producer. The next one ends its transaction, if that is still open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _round(self, group: str) -> tuple[StagedModel, str]:
        """Perform operations on a new group; return the expected state and what was done."""
        model = StagedModel()
        done: list[str] = []
        producer = self._ready_producer()
        self._commit(group, model, done)
        producer.begin()
        producer.send_offsets({(TOPIC, 0): 100}, group)
        model.stage(100)
        done.append("stage 100")
        operations: tuple[Callable[[str, StagedModel, list[str]], None], ...] = (
            self._commit,
            self._delete_offset,
            self._delete_group,
            self._expire,
        )
        for _ in range(self.rng.randrange(STEPS)):
            self.rng.choice(operations)(group, model, done)
        is_commit = self.rng.random() < 0.7
        (producer.commit if is_commit else producer.abort)()
        model.end(is_commit)
        done.append("commit" if is_commit else "abort")
        # An offset that would expire later has no lasting result.
        if model.expires:
            self._expire(group, model, done)
        return model, ", ".join(done)

    def _ready_producer(self) -> OwnProducer:
        if self._producer is None:
            self._producer = OwnProducer(
                self.options.bootstrap, "staged", lambda error: self.options.errors.add(str(error))
            )
            self._producer.initialize()
        return self._producer

    def _commit(self, group: str, model: StagedModel, done: list[str]) -> None:
        offset, expires = self.rng.randrange(1, 99), self.rng.random() < 0.5
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=group,
            retention_time_ms=RETENTION_MS if expires else -1,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        response = self._ask(group, request, 2)
        self._check(response.topics[0].partitions[0].error_code)
        model.commit(offset, expires)
        done.append(f"commit {offset}" + expires * f" for {RETENTION_MS} ms")

    def _delete_offset(self, group: str, model: StagedModel, done: list[str]) -> None:
        topic = OffsetDeleteRequestTopic(
            name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        response = self._ask(group, OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
        self._check(response.error_code)
        self._check(response.topics[0].partitions[0].error_code)
        model.delete()
        done.append("OffsetDelete")

    def _delete_group(self, group: str, model: StagedModel, done: list[str]) -> None:
        response = self._ask(group, DeleteGroupsRequest(groups_names=[group]), 1)
        self._check(response.results[0].error_code)
        model.delete()
        done.append("DeleteGroups")

    def _expire(self, group: str, model: StagedModel, done: list[str]) -> None:
        time.sleep(RETENTION_MS / 1000 + EXPIRED_S)
        model.let_expire()
        done.append("expiry")

    def _ask(self, group: str, request: Message, version: int) -> Message:
        view = self.options.view
        return view.ask(view.coordinator(group), request, version)

    @staticmethod
    def _check(error_code: int) -> None:
        """Accept success only: a failed write may be in the log nevertheless."""
        if error_code != ErrorCode.NONE:
            raise UnknownResultError(ErrorCode(error_code).name)

    def _offset(self, group: str) -> int:
        """Return the committed offset of a group.

        Raises:
            NoAnswerError: the coordinator has not loaded its log.
            OSError: it does not answer.
        """
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        response = self._ask(group, OffsetFetchRequest(group_id=group, topics=[topic]), 5)
        told = response.topics[0].partitions[0] if response.topics else None
        if told is None or response.error_code or told.error_code:
            raise NoAnswerError(f"{group} has no offset yet")
        return int(told.committed_offset)

    def judge(self) -> Verdict:
        """Return groups whose offset is not what the model says."""
        verdict = Verdict(self.KINDS)
        for group, (expected, history) in self.expected.items():
            # Only the first difference may be a coordinator that still loads its log.
            patience_s = 1.0 if verdict.counts else LATE_S
            found = self._await_offset(group, expected, patience_s)
            if found != expected:
                text = f"{group}: {history}: expected {expected}, found {found}"
                verdict.add("staged offset", text)
        return verdict

    def _await_offset(self, group: str, expected: int, patience_s: float) -> int | None:
        """Return the offset of a group once it is the expected one, or after `patience_s`."""
        found: int | None = None
        deadline = time.monotonic() + patience_s
        while found != expected and time.monotonic() < deadline:
            with contextlib.suppress(NoAnswerError, OSError):
                found = self._offset(group)
        return found

    def leftovers(self) -> Leftovers:
        """Return the groups of all rounds; some are deleted or expire."""
        return Leftovers(groups_with_offset=self._rounds, transactional_ids=1)

    def figures(self) -> dict[str, int]:
        """Return the number of groups, and of those with a known result."""
        return {"groups": self._rounds, "judged": len(self.expected)}
