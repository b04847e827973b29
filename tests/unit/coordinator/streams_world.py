"""Members of streams groups in a coordinator's virtual time."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from barnabas.coordinator.group.streams.streams_heartbeat import (
    StreamsClient,
    StreamsHeartbeatResult,
)
from barnabas.protocol.messages.streams_group_describe import DescribedGroup
from barnabas.protocol.messages.streams_groups import (
    EndpointRequest,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIdsRequest,
    TaskIdsResponse,
    TaskOffset,
    TopicInfo,
    Topology,
)
from steps import finish
from unit.coordinator.consumers_world import CLIENT, ConsumersWorld

Tasks = Mapping[str, set[int]]


def topology(
    *sources: str, epoch: int = 0, changelog: str | None = None, repartition: str | None = None
) -> Topology:
    """Return a topology of one subtopology `0`, or two if it has a repartition topic."""
    changelogs = [] if changelog is None else [_internal(changelog)]
    if repartition is None:
        return Topology(epoch=epoch, subtopologies=[_part("0", sources, changelogs)])
    sink = _part("0", sources, [])
    sink.repartition_sink_topics = [repartition]
    reader = _part("1", (), changelogs)
    reader.repartition_source_topics = [_internal(repartition)]
    return Topology(epoch=epoch, subtopologies=[sink, reader])


def _part(name: str, sources: tuple[str, ...], changelogs: list[TopicInfo]) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=changelogs,
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )


def _internal(name: str) -> TopicInfo:
    return TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[])


def by_subtopology(tasks: list[TaskIdsResponse] | None) -> Tasks | None:
    """Return the tasks of a response; None if it has none."""
    if tasks is None:
        return None
    return {each.subtopology_id: set(each.partitions) for each in tasks}


class StreamsWorld(ConsumersWorld):
    """A loaded coordinator, topics, and short calls for requests."""

    def __init__(
        self,
        replicas: tuple[int, ...] = (1,),
        broker_config: dict[str, str | int] | None = None,
        **config: int,
    ) -> None:
        streams_config = {
            "group_streams_assignment_interval_ms": 0,
            "group_streams_initial_rebalance_delay_ms": 0,
            **config,
        }
        # The heartbeats that asked for topics, and their topics.
        self.last: StreamsHeartbeatResult
        # Whether the last heartbeat had more work than one turn of the loop may have.
        self.has_sliced = False
        super().__init__(replicas, broker_config, **streams_config)

    def beat_streams(
        self, member: str, epoch: int, given: Topology | None = None, **fields: object
    ) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat. A join owns no tasks and has a rebalance timeout of 1 s."""
        version = fields.pop("version", 1)
        owned = fields.pop("owned", {} if epoch == 0 else None)
        standby = fields.pop("standby", {} if owned is not None else None)
        tags = fields.pop("tags", None)
        endpoint = fields.pop("endpoint", None)
        identity = fields.pop("client", CLIENT)
        request = StreamsGroupHeartbeatRequest(
            group_id=fields.pop("group", "g"),
            member_id=member,
            member_epoch=epoch,
            endpoint_information_epoch=fields.pop("endpoint_epoch", 0),
            instance_id=fields.pop("instance", None),
            rack_id=fields.pop("rack", None),
            rebalance_timeout_ms=fields.pop("rebalance_ms", 1_000 if epoch == 0 else -1),
            topology=given,
            active_tasks=_requested(owned),
            standby_tasks=_requested(standby),
            warmup_tasks=None if owned is None else [],
            process_id=fields.pop("process", member if epoch == 0 else None),
            user_endpoint=None if endpoint is None else EndpointRequest(host=endpoint, port=9),
            client_tags=None
            if tags is None
            else [KeyValue(key=key, value=value) for key, value in tags.items()],
            task_offsets=_offsets(fields.pop("offsets", None)),
            task_end_offsets=_offsets(fields.pop("end_offsets", None)),
            shutdown_application=bool(fields.pop("shutdown", False)),
        )
        assert not fields, fields
        found: list[StreamsHeartbeatResult] = []
        self.has_sliced = False

        def in_slices(steps: Generator[None, None, None]) -> None:
            self.has_sliced = True
            finish(steps)

        self.coordinator.streams.heartbeat(
            request, StreamsClient(identity, version), found.append, in_slices
        )
        (self.last,) = found
        return self.last.response

    def describe_streams(self, group: str = "g") -> DescribedGroup:
        found: list[list[DescribedGroup]] = []
        finish(self.coordinator.streams.describe([group], found.append, includes_description=False))
        ((described,),) = found
        return described

    def state_of(self, group: str = "g") -> str:
        return self.describe_streams(group).group_state


def _requested(tasks: Tasks | None) -> list[TaskIdsRequest] | None:
    if tasks is None:
        return None
    return [
        TaskIdsRequest(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in tasks.items()
    ]


def _offsets(offsets: Mapping[int, int] | None) -> list[TaskOffset] | None:
    """Return offsets by partition of the subtopology `0`."""
    if offsets is None:
        return None
    return [
        TaskOffset(subtopology_id="0", partition=index, offset=offset)
        for index, offset in offsets.items()
    ]
