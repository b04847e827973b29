"""Partition changes when brokers leave, fail or return, and leader elections on request.

Kafka's ReplicationControlManager, and ElectLeaders API 43 (KIP-183, KIP-460).
"""

from __future__ import annotations

from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.controller.partitions.partition_change import (
    NO_BROKER,
    Candidates,
    Election,
    ElectionRules,
    changed_partition,
)
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
    from collections.abc import Generator, Iterable, Iterator, Set as AbstractSet

    from barnabas.controller.config_rules import TopicConfigs
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage
    from barnabas.protocol.records.topics import PartitionChangeRecord

    Located = tuple[TopicImage, int, PartitionRegistration]


_NONE: frozenset[int] = frozenset()


class Elections:
    """Makes the partition change records.

    It scans all partitions, because broker events are rare.
    """

    def __init__(self, topic_configs: TopicConfigs, suspected: AbstractSet[int] = _NONE) -> None:
        """Create the elections with the given topic configs.

        Args:
            topic_configs: the effective configs of topics.
            suspected: brokers that may be dead; the controller updates this set.
        """
        self._topic_configs = topic_configs
        self._suspected = suspected

    def on_leaving(
        self, image: ClusterImage, broker_id: int, limit: int | None = None
    ) -> list[VersionedRecord]:
        """Remove a broker that shuts down or asks to be fenced from every ISR, and elect leaders.

        Args:
            image: the cluster, in which the broker may still be live.
            broker_id: the broker that leaves.
            limit: maximum number of records; None for no limit.
        """
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id),
            Candidates(image.brokers, leaving=broker_id),
            limit=limit,
        )

    def on_death(
        self, image: ClusterImage, broker_id: int, limit: int | None = None
    ) -> list[VersionedRecord]:
        """Remove a broker whose process has ended from every ISR, and elect leaders.

        Brokers that may have died at the same time are not elected. Otherwise, if several brokers
        died together, each of them could become leader in turn. The last one would be the only
        replica in the ISR, although the others have the same records.

        Args:
            image: the cluster, in which the broker may still be live.
            broker_id: the broker whose process has ended.
            limit: maximum number of records; None for no limit.
        """
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id),
            Candidates(image.brokers, leaving=broker_id, suspected=self._suspected),
            limit=limit,
        )

    def on_unclean_shutdown(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Remove a broker that may have lost data from every ISR and ELR (KIP-966)."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id, suspected=self._suspected),
            unclean_shutdown=frozenset({broker_id}),
        )

    def on_unregistered(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Remove an unregistered broker from every ISR."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id),
        )

    def on_returning(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Elect leaders for leaderless partitions of a broker that is unfenced or found alive.

        Args:
            image: the cluster, in which the broker may still be fenced.
            broker_id: the broker that returns.
        """
        leaderless = (
            located
            for located in all_partitions(image)
            if located[2].leader == NO_LEADER and broker_id in located[2].replicas
        )
        candidates = Candidates(image.brokers, returning=broker_id, suspected=self._suspected)
        return self._without(image, NO_BROKER, leaderless, candidates)

    def on_directories_lost(
        self, image: ClusterImage, broker_id: int, partitions: Iterable[Located]
    ) -> list[VersionedRecord]:
        """Remove a broker from the ISR of partitions whose replicas there cannot be used."""
        candidates = Candidates(image.brokers, leaving=broker_id)
        return self._without(image, broker_id, partitions, candidates)

    def on_directory_replaced(
        self, image: ClusterImage, topic: TopicImage, partition: int, broker_id: int
    ) -> tuple[PartitionChangeRecord, int] | None:
        """Remove a replica that starts empty in a new directory from all replica lists.

        Returns:
            The record that removes it from ISR, ELR and last known leaders; None if it is in none.
        """
        before = topic.partitions[partition]
        candidates = Candidates(image.brokers, leaving=broker_id, suspected=self._suspected)
        rules = replace(
            self._rules(image, topic.name, candidates, _NONE), emptied=frozenset({broker_id})
        )
        target = tuple(replica for replica in before.isr if replica != broker_id)
        return changed_partition(partition, topic.id, before, target, rules)

    def rules(self, image: ClusterImage, topic: str, candidates: Candidates) -> ElectionRules:
        """Return the rules for elections in a topic, according to the topic's configs."""
        return self._rules(image, topic, candidates, _NONE)

    def strict_rules(
        self, image: ClusterImage, topic: str, candidates: Candidates, election: Election
    ) -> ElectionRules:
        """Return the rules with a given kind of election, whatever the configs say."""
        return ElectionRules(
            image.features.metadata_version,
            image.features.is_elr_enabled,
            self._min_isr(image, topic),
            candidates,
            election,
        )

    def _without(
        self,
        image: ClusterImage,
        broker_id: int,
        partitions: Iterable[Located],
        candidates: Candidates,
        unclean_shutdown: frozenset[int] = _NONE,
        limit: int | None = None,
    ) -> list[VersionedRecord]:
        """Remove the broker from the ISR of each partition, and elect a leader where necessary."""
        records: list[VersionedRecord] = []
        known: TopicImage | None = None
        rules: ElectionRules | None = None
        for topic, partition, before in partitions:
            if topic is not known or rules is None:
                known, rules = topic, self._rules(image, topic.name, candidates, unclean_shutdown)
            target = tuple(replica for replica in before.isr if replica != broker_id)
            change = changed_partition(partition, topic.id, before, target, rules)
            if change is not None:
                records.append(change)
                if len(records) == limit:
                    break
        return records

    def _rules(
        self,
        image: ClusterImage,
        topic: str,
        candidates: Candidates,
        unclean_shutdown: frozenset[int],
    ) -> ElectionRules:
        configs = self._topic_configs
        return ElectionRules(
            image.features.metadata_version,
            image.features.is_elr_enabled,
            self._min_isr(image, topic),
            candidates,
            Election.UNCLEAN if configs.has_unclean_election(image, topic) else Election.ONLINE,
            unclean_shutdown,
        )

    def _min_isr(self, image: ClusterImage, topic: str) -> int:
        """As in Kafka, the first partition determines the number of replicas of a topic."""
        wanted = self._topic_configs.min_insync_replicas(image, topic)
        first = image.topics.partition(topic, 0)
        return wanted if first is None else min(wanted, len(first.replicas))


def all_partitions(image: ClusterImage) -> Iterator[Located]:
    """Yield every partition of the cluster, topic by topic."""
    for topic in image.topics:
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration


def leads_any_partition(image: ClusterImage, broker_id: int) -> bool:
    """Return whether the broker leads a partition."""
    return any(each.leader == broker_id for _, _, each in all_partitions(image))


def uses_more_than(image: ClusterImage, broker_id: int, count: int) -> bool:
    """Return whether the broker leads, or is in the ISR of, more than `count` partitions."""
    return sum(1 for _ in islice(_in_use(image, broker_id), count + 1)) > count


def _in_use(image: ClusterImage, broker_id: int, *, or_eligible: bool = False) -> Iterator[Located]:
    """Yield the partitions that the broker leads or is in the ISR of (or in the ELR)."""
    for located in all_partitions(image):
        partition = located[2]
        if (
            broker_id in partition.isr
            or partition.leader == broker_id
            or (or_eligible and broker_id in partition.elr)
        ):
            yield located


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
            elected: list[PartitionResult] = []
            for partition in partitions:
                yield
                try:
                    records.append(self._elect(image, topic, partition, kind, candidates))
                    elected.append(_result(partition, ErrorCode.NONE, None))
                except Refusal as refusal:
                    if everything and refusal.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                        continue
                    elected.append(_result(partition, refusal.error_code, refusal.message))
            results.append(ReplicaElectionResult(topic=topic, partition_result=elected))
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


def _result(partition: int, error: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=error, error_message=message)


def refuse_elect_leaders(
    request: ElectLeadersRequest, error: Refusal
) -> Generator[None, None, ElectLeadersResponse]:
    """Make the error response for all partitions of a request."""
    results: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions or []:
        elected = yield from gradually(
            _result(partition, error.error_code, error.message or None)
            for partition in topic.partitions
        )
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=elected))
    return ElectLeadersResponse(error_code=error.error_code, replica_election_results=results)
