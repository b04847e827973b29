"""Requests of other replicas on the wire: Kafka's envelopes, errors and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    begin_quorum_epoch as begins,
    end_quorum_epoch as ends,
    fetch as fetches,
    quorum,
)
from barnabas.raft.config import RaftConfig
from barnabas.raft.core import messages as core
from barnabas.raft.driver.opening import RaftOpening, open_raft
from barnabas.raft.driver.rpc import RaftRpc
from barnabas.raft.log.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.raft.transport.conversion import (
    core_request,
    core_response,
    request_message,
    response_message,
)
from barnabas.raft.voter_set import Address, ReplicaKey, Voter
from barnabas.sim.world import SimWorld
from barnabas.storage.log_dependencies import LogDependencies
from unit.metadata.clusters import topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver

CLUSTER_ID, OTHER_CLUSTER_ID = "this-cluster", "another-one"
LEADER = ReplicaKey(1, bytes([1] * 16))
OTHER = ReplicaKey(2, bytes([2] * 16))


class LeadingVoter:
    """A single voter that leads epoch 1."""

    def __init__(self, seed: int = 1, **values: Any) -> None:
        self.world = SimWorld(seed)
        runtime = self.world.host("a").runtime
        runtime.disk.make_directory("/data")
        log_dependencies = LogDependencies(
            runtime.disk, runtime.clock, runtime.executor, runtime.timer, runtime.rng
        )
        config = RaftConfig(
            1,
            (1,),
            {1: ("one", 9093)},
            cluster_id=CLUSTER_ID,
            directory_id=LEADER.directory_id,
            advertised={"CONTROLLER": ("one", 9093), "SECURE": ("one", 9095)},
            **values,
        )
        opening = RaftOpening(
            "/data", log_dependencies, runtime.rng, self.fail, {"metadata.version": 33}
        )
        self.driver: RaftDriver = open_raft(config, opening)
        self.driver.start()
        self.rpc = RaftRpc(self.driver)
        self.settle()

    def fail(self, error: BaseException) -> None:
        raise error

    def settle(self) -> None:
        driver = self.driver
        assert self.world.run_until(lambda: driver.core.high_watermark == driver.log.log_end_offset)

    def append(self, count: int) -> None:
        for number in range(count):
            self.driver.append([(topic(f"t{number}", number), 0)], lambda *_: None)
        self.settle()

    def exchange(self, request: Message, version: int, listener: str | None = None) -> Any:
        responses: list[Message] = []
        self.rpc.serve(request, version, responses.append, listener)
        assert self.world.run_until(lambda: bool(responses), 2_000)
        (response,) = responses
        return response


def fetch(offset: int, epoch: int = 1, last_epoch: int = 1, **values: Any) -> fetches.FetchRequest:
    wait_ms = values.pop("max_wait_ms", 0)
    partition = fetches.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=OTHER.directory_id,
        **values,
    )
    return fetches.FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_state=fetches.ReplicaState(replica_id=2),
        max_wait_ms=wait_ms,
        min_bytes=0,
        topics=[fetches.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def only_partition(response: fetches.FetchResponse) -> fetches.PartitionData:
    ((partition,),) = (topic.partitions for topic in response.responses)
    return partition


def fetch_snapshot(position: int, end_offset: int, epoch: int = 1) -> Message:
    partition = quorum.PartitionSnapshotRequest(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=quorum.SnapshotIdRequest(end_offset=end_offset, epoch=1),
        position=position,
    )
    return quorum.FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_id=2,
        max_bytes=100,
        topics=[quorum.TopicSnapshotRequest(name=METADATA_TOPIC, partitions=[partition])],
    )


def every_request() -> Iterator[tuple[core.Request, int]]:
    """Yield each request of the quorum, with a version that has all its fields."""
    voter = Voter(OTHER, (("CONTROLLER", Address("two", 9093)),))
    yield core.VoteRequest(OTHER, 7, 5, 40, pre_vote=True, voter=LEADER), 2
    yield core.BeginQuorumEpochRequest(2, 7, Address("two", 9093), LEADER), 1
    yield core.EndQuorumEpochRequest(2, 7, (LEADER, OTHER), Address("two", 9093)), 1
    yield core.FetchRequest(OTHER, 7, 40, 5, 30, 500, 1000), 18
    yield core.FetchSnapshotRequest(OTHER, 7, core.SnapshotId(30, 4), 17, 1000), 1
    yield core.AddVoterRequest(voter, 5_000, ack_when_committed=False), 1
    yield core.RemoveVoterRequest(OTHER), 0
    yield core.UpdateVoterRequest(voter, 7), 0


@pytest.mark.parametrize(("request_", "version"), list(every_request()))
def test_requests_are_decoded_as_they_were_encoded(request_: core.Request, version: int) -> None:
    sender = RaftConfig(
        2, (), directory_id=OTHER.directory_id, advertised={"CONTROLLER": ("two", 9093)}
    )
    message = request_message(request_, version, sender)
    decoded = core_request(message, "CONTROLLER", lambda _: None)
    assert decoded is not None
    plain = type(decoded)
    fields = [name for name in plain.__struct_fields__ if name not in ("reply_to", "token")]
    for name in fields:
        assert getattr(decoded, name) == getattr(request_, name), name


def every_response() -> Iterator[tuple[core.Response, core.Request, int]]:
    """Yield a response to each request of `every_request`, with all fields that it can have."""
    leader: dict[str, Any] = {
        "error": ErrorCode.FENCED_LEADER_EPOCH,
        "epoch": 8,
        "leader_id": 2,
        "leader_address": Address("two", 9093),
    }
    snapshot_id = core.SnapshotId(30, 4)
    change = core.VoterChangeResponse(message="text", error=ErrorCode.VOTER_NOT_FOUND)
    responses = [
        core.VoteResponse(granted=True, **leader),
        core.QuorumEpochResponse(**leader),
        core.QuorumEpochResponse(**leader),
        core.FetchResponse(
            high_watermark=5,
            diverging=core.DivergingEpoch(3, 20),
            snapshot_id=snapshot_id,
            log_start_offset=2,
            records=b"batch",
            **leader,
        ),
        core.FetchSnapshotResponse(
            snapshot_id=snapshot_id, size=90, position=17, content=b"bytes", **leader
        ),
        change,
        change,
        core.VoterChangeResponse(**leader),
    ]
    for response, (request, version) in zip(responses, every_request(), strict=True):
        yield response, request, version


@pytest.mark.parametrize(("response", "request_", "version"), list(every_response()))
def test_responses_are_decoded_as_they_were_encoded(
    response: core.Response, request_: core.Request, version: int
) -> None:
    message = response_message(request_, response, version)
    assert core_response(message, response.token, "CONTROLLER") == response


@pytest.mark.parametrize(("request_", "version"), list(every_request()))
def test_requests_for_another_cluster_are_refused(request_: core.Request, version: int) -> None:
    side = LeadingVoter()
    message = request_message(request_, version, RaftConfig(2, (), cluster_id=OTHER_CLUSTER_ID))
    response = side.exchange(message, version)
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert side.driver.core.leader_and_epoch == (1, 1)


def test_requests_for_another_partition_are_invalid() -> None:
    side = LeadingVoter()
    request = fetch(0)
    request.topics[0].topic_id = bytes(15) + b"\x02"
    assert side.exchange(request, 17).error_code == ErrorCode.INVALID_REQUEST
    vote = request_message(core.VoteRequest(OTHER, 1, 0, 0, pre_vote=True), 2, RaftConfig(2, ()))
    assert isinstance(vote, quorum.VoteRequest)
    vote.topics[0].partitions[0].partition_index = 1
    assert side.exchange(vote, 2).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_response_has_complete_batches_leader_epoch_and_endpoint() -> None:
    side = LeadingVoter()
    side.append(3)
    response = side.exchange(fetch(0, last_epoch=0), 17)
    data = only_partition(response)
    assert (data.error_code, data.high_watermark, data.log_start_offset) == (0, 4, 0)
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 1)
    records: Any = data.records
    assert records.read() == side.driver.log.reader.read(0, 1 << 20, 0, True).records.read()
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "one", 9093)
    assert side.exchange(fetch(0, last_epoch=0), 15).node_endpoints == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(0, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch(0, epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch(-1), ErrorCode.INVALID_REQUEST),
        (fetch(0, last_epoch=-1), ErrorCode.INVALID_REQUEST),
        (fetch(0, last_epoch=2), ErrorCode.INVALID_REQUEST),
        (fetch(0, max_wait_ms=-1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_fetch_has_kafkas_error_code(request_: Message, error: ErrorCode) -> None:
    data = only_partition(LeadingVoter().exchange(request_, 17))
    assert (data.error_code, data.high_watermark) == (error, -1)
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 1)


def test_a_fetch_beyond_the_end_returns_the_diverging_epoch() -> None:
    data = only_partition(LeadingVoter().exchange(fetch(9), 17))
    assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (
        0,
        1,
        1,
    )


def test_a_fetch_at_the_end_waits_for_records_or_its_timeout() -> None:
    side = LeadingVoter()
    before = side.world.scheduler.now_ms
    assert not only_partition(side.exchange(fetch(1, max_wait_ms=300), 17)).records
    assert 300 <= side.world.scheduler.now_ms - before < 400
    # A follower with a lower high watermark gets a response at once (KIP-1166).
    before = side.world.scheduler.now_ms
    assert (
        only_partition(
            side.exchange(fetch(1, max_wait_ms=300, high_watermark=0), 18)
        ).high_watermark
        == 1
    )
    assert side.world.scheduler.now_ms - before < 1
    responses: list[Any] = []
    side.rpc.serve(fetch(1, max_wait_ms=300), 17, responses.append)
    assert responses == []
    side.append(1)
    assert only_partition(responses[0]).records


def test_snapshots_are_served_in_slices_with_kafkas_error_codes() -> None:
    side = LeadingVoter(retention_bytes=1)
    side.append(3)
    writer = side.driver.snapshot_writer(core.SnapshotId(4, 1), 0)
    writer.append([(topic("t", 1), 0)] * 10)
    writer.freeze()
    side.driver.note_snapshot(writer.id)
    path = f"{side.driver.log.directory}/00000000000000000004-0000000001.checkpoint"
    content = side.world.host("a").disk.read(path)
    result = only_partition(side.exchange(fetch(2), 17)).snapshot_id
    assert (result.end_offset, result.epoch) == (4, 1)

    def snapshot_partition(request: Message) -> quorum.PartitionSnapshotResponse:
        ((found,),) = (topic.partitions for topic in side.exchange(request, 1).topics)
        return found

    decoded = b""
    while len(decoded) < len(content):
        found = snapshot_partition(fetch_snapshot(len(decoded), 4))
        assert (found.error_code, found.size, found.position) == (0, len(content), len(decoded))
        assert 0 < len(found.unaligned_records) <= 100
        decoded += bytes(found.unaligned_records)
    assert decoded == content
    for request, error in (
        (fetch_snapshot(0, 3), ErrorCode.SNAPSHOT_NOT_FOUND),
        (fetch_snapshot(0, 0), ErrorCode.SNAPSHOT_NOT_FOUND),
        (fetch_snapshot(-1, 4), ErrorCode.POSITION_OUT_OF_RANGE),
        (fetch_snapshot(len(content), 4), ErrorCode.POSITION_OUT_OF_RANGE),
        (fetch_snapshot(0, 4, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch_snapshot(0, 4, epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        found = snapshot_partition(request)
        assert found.error_code == error
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (1, 1)


def test_responses_contain_the_leaders_endpoint_in_versions_with_that_field() -> None:
    side = LeadingVoter()
    config = RaftConfig(2, (), cluster_id=CLUSTER_ID)
    vote = core.VoteRequest(OTHER, 1, 0, 9, pre_vote=False)
    for version, endpoints in ((0, 0), (1, 1), (2, 1)):
        response = side.exchange(request_message(vote, version, config), version)
        assert isinstance(response, quorum.VoteResponse)
        ((result,),) = (topic.partitions for topic in response.topics)
        assert (result.error_code, result.leader_id, result.leader_epoch) == (0, 1, 1)
        assert not result.vote_granted
        assert len(response.node_endpoints) == endpoints


@pytest.mark.parametrize(
    ("listener", "ports"), [(None, [9093]), ("CONTROLLER", [9093]), ("SECURE", [9095]), ("NEW", [])]
)
def test_responses_contain_the_leaders_endpoint_on_the_listener_of_the_request(
    listener: str | None, ports: list[int]
) -> None:
    response = LeadingVoter().exchange(fetch(0), 18, listener)
    assert [each.port for each in response.node_endpoints] == ports


def test_old_epochs_are_fenced() -> None:
    side = LeadingVoter()
    config = RaftConfig(2, (), cluster_id=CLUSTER_ID)
    begin = request_message(core.BeginQuorumEpochRequest(2, 0), 1, config)
    end = request_message(core.EndQuorumEpochRequest(2, 0, ()), 1, config)
    for request, kind in (
        (begin, begins.BeginQuorumEpochResponse),
        (end, ends.EndQuorumEpochResponse),
    ):
        response = side.exchange(request, 1)
        assert isinstance(response, kind)
        ((result,),) = (topic.partitions for topic in response.topics)
        assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (result.leader_id, result.leader_epoch) == (1, 1)


def test_static_voters_report_their_directory_ids_and_cannot_be_changed() -> None:
    side = LeadingVoter()
    side.append(1)
    config = RaftConfig(2, (), cluster_id=CLUSTER_ID)
    known = Voter(LEADER, (("CONTROLLER", Address("one", 9093)),))
    unknown = Voter(OTHER, (("CONTROLLER", Address("two", 9093)),))
    elsewhere = Voter(LEADER, (("OTHER", Address("one", 9093)),))
    for voter, epoch, error in (
        (known, 1, ErrorCode.NONE),
        (known, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (unknown, 1, ErrorCode.VOTER_NOT_FOUND),
        (elsewhere, 1, ErrorCode.INVALID_REQUEST),
    ):
        update = request_message(core.UpdateVoterRequest(voter, epoch), 0, config)
        response = side.exchange(update, 0)
        assert isinstance(response, quorum.UpdateRaftVoterResponse)
        leader = response.current_leader
        assert (response.error_code, leader.leader_id, leader.host) == (error, 1, "one")
    add = side.exchange(request_message(core.AddVoterRequest(unknown), 1, config), 1)
    assert isinstance(add, quorum.AddRaftVoterResponse)
    assert add.error_code == ErrorCode.UNSUPPORTED_VERSION
    remove = side.exchange(request_message(core.RemoveVoterRequest(LEADER), 0, config), 0)
    assert isinstance(remove, quorum.RemoveRaftVoterResponse)
    assert remove.error_code == ErrorCode.UNSUPPORTED_VERSION
