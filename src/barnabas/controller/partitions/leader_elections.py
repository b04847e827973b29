"""Leader elections on request, and periodic ones (ElectLeaders API 43; KIP-183, KIP-460)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.controller.partitions.elections import all_partitions
from barnabas.controller.partitions.partition_change import Candidates, Election, changed_partition
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage


# Maximum number of elections in one run of a periodic task, as in Kafka.
_ELECTIONS_MAX = 1000


class ElectionType(IntEnum):
    """The kind of election; the numbers are Kafka's."""

    # The first replica becomes leader if it is in sync.
    PREFERRED = 0
    # Any live replica may become leader if the partition has none.
    UNCLEAN = 1


class LeaderElectionControl:
    """Handles requests for elections, and returns the resulting records."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def elect(
        self, view: ControllerView, request: ElectLeadersRequest
    ) -> Generator[None, None, ControllerResult[ElectLeadersResponse]]:
        """Elect a leader for each named partition, or for all partitions if none is named.

        Yields before each partition.
        """
        if request.topic_partitions == []:
            # An empty list names no partition, so even the type of election is not checked.
            response = ElectLeadersResponse(replica_election_results=[])
            return ControllerResult([], response, at_once=True)
        if request.election_type not in tuple(ElectionType):
            refusal = Refusal(
                ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}"
            )
            return ControllerResult([], (yield from refuse_elect_leaders(request, refusal)))
        kind = ElectionType(request.election_type)
        image = view.image
        everything = request.topic_partitions is None
        wanted = (
            [(topic.name, sorted(topic.partitions)) for topic in image.topics]
            if request.topic_partitions is None
            else [(each.topic, each.partitions) for each in request.topic_partitions]
        )
        candidates = Candidates(image.brokers)
        records: list[VersionedRecord] = []
        results: list[ReplicaElectionResult] = []
        for topic, partitions in wanted:
            answers: list[PartitionResult] = []
            for partition in partitions:
                yield
                try:
                    records.append(self._elect(image, topic, partition, kind, candidates))
                    answers.append(_answer(partition, ErrorCode.NONE, None))
                except Refusal as refusal:
                    if everything and refusal.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                        continue
                    answers.append(_answer(partition, refusal.error_code, refusal.message))
            results.append(ReplicaElectionResult(topic=topic, partition_result=answers))
            yield
        return ControllerResult(records, ElectLeadersResponse(replica_election_results=results))

    # -- periodic elections ------------------------------------------------------------------------

    def elect_preferred(self, view: ControllerView) -> ControllerResult[bool]:
        """Elect preferred leaders; the response says whether more elections are needed."""
        image, candidates = view.image, Candidates(view.image.brokers)
        records: list[VersionedRecord] = []
        for topic, partition, before in all_partitions(image):
            if len(records) >= _ELECTIONS_MAX:
                return ControllerResult(records, response=True)
            preferred = before.preferred_leader
            if before.leader == preferred or not candidates.may_lead(before, preferred):
                continue
            rules = self._elections.strict_rules(image, topic.name, candidates, Election.PREFERRED)
            change = changed_partition(partition, topic.id, before, before.isr, rules)
            if change is not None:
                records.append(change)
        return ControllerResult(records, response=False)

    def elect_unclean(self, view: ControllerView) -> ControllerResult[bool]:
        """Elect leaders uncleanly for leaderless partitions whose topics allow it.

        The response says whether more elections are needed.
        """
        image, candidates = view.image, Candidates(view.image.brokers)
        records: list[VersionedRecord] = []
        for topic, partition, before in all_partitions(image):
            if len(records) >= _ELECTIONS_MAX:
                return ControllerResult(records, response=True)
            if before.leader != NO_LEADER:
                continue
            rules = self._elections.rules(image, topic.name, candidates)
            if rules.election is not Election.UNCLEAN:
                continue
            change = changed_partition(partition, topic.id, before, before.isr, rules)
            if change is not None:
                records.append(change)
        return ControllerResult(records, response=False)

    # -- requested elections -----------------------------------------------------------------------

    def _elect(
        self,
        image: ClusterImage,
        name: str,
        partition: int,
        kind: ElectionType,
        candidates: Candidates,
    ) -> VersionedRecord:
        topic = image.topics.by_name(name)
        before = None if topic is None else topic.partitions.get(partition)
        if topic is None or before is None:
            raise Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}"
            )
        is_preferred = kind is ElectionType.PREFERRED
        needless = before.leader == before.preferred_leader
        if needless if is_preferred else before.leader != NO_LEADER:
            raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{partition} needs no election")
        election = Election.PREFERRED if is_preferred else Election.UNCLEAN
        rules = self._elections.strict_rules(image, name, candidates, election)
        change = changed_partition(partition, topic.id, before, before.isr, rules)
        if change is None and is_preferred:
            raise Refusal(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {before.preferred_leader} is not in sync or not live",
            )
        if change is None:
            raise Refusal(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"none of the brokers {list(before.replicas)} is live",
            )
        return change


def _answer(partition: int, error: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=error, error_message=message)


def refuse_elect_leaders(
    request: ElectLeadersRequest, error: Refusal
) -> Generator[None, None, ElectLeadersResponse]:
    """Make the error response for all partitions of a request."""
    results: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions or []:
        answers = yield from gradually(
            _answer(partition, error.error_code, error.message or None)
            for partition in topic.partitions
        )
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=answers))
    return ElectLeadersResponse(error_code=error.error_code, replica_election_results=results)
