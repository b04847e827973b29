"""Unknown error codes of a newer controller are handled like other errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.broker_registration import ControllerRegistration
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import AssignReplicasToDirsResponse
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationResponse,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.protocol.messages.quorum import (
    PartitionDataResponse as VotePartition,
    TopicDataResponse as VoteTopic,
    VoteResponse,
)
from barnabas.raft.log.metadata_log import METADATA_TOPIC
from barnabas.raft.transport.conversion import core_response
from barnabas.replication.partition.isr import AlterPartitionProposal
from barnabas.server.cluster.cluster_view import Backlog, ClusterView
from barnabas.server.controller_access.broker_requests import (
    DirectoryAssignments,
    ForwardedAlterPartition,
)
from barnabas.server.controller_access.controller_registrant import ControllerRegistrant
from barnabas.server.controller_access.registration import Registrant, Registration
from barnabas.sim.world import SimWorld
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.metadata.clusters import feature, image_of

if TYPE_CHECKING:
    from collections.abc import Callable


NEWER = 9_999


class NewerController:
    """A `ControllerAccess` that returns the scripted responses in order; the last one repeats."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    def send(
        self,
        request: Any,
        on_done: Callable[[Any], None],
        mutations: object = None,
        client_context: object = None,
    ) -> None:
        self.asked.append(request)
        on_done(self._answers[min(len(self.asked), len(self._answers)) - 1])


def test_a_registration_and_a_heartbeat_are_retried() -> None:
    world = SimWorld(1)
    controller = NewerController(
        BrokerRegistrationResponse(error_code=NEWER),
        BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=5),
        BrokerHeartbeatResponse(error_code=NEWER, should_shut_down=False),
        BrokerHeartbeatResponse(error_code=ErrorCode.NONE, is_fenced=False, should_shut_down=False),
    )
    let_in: list[bool] = []
    registration = Registration(
        Registrant(1, "cluster", bytes(16), [], None, [], 2_000),
        controller,
        world.host("a").runtime.timer,
        lambda: 7,
        lambda: let_in.append(True),
    )
    registration.start(-1)
    assert registration.last_refusal is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.run_until(lambda: bool(let_in))
    assert [type(each) for each in controller.asked] == [
        BrokerRegistrationRequest,
        BrokerRegistrationRequest,
        BrokerHeartbeatRequest,
        BrokerHeartbeatRequest,
    ]


def test_a_directory_assignment_is_retried() -> None:
    world = SimWorld(1)
    controller = NewerController(
        AssignReplicasToDirsResponse(error_code=NEWER, directories=[]),
        AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=[]),
    )
    runtime = world.host("a").runtime
    assignments = DirectoryAssignments(
        1,
        lambda: 5,
        controller,
        world.host("a").runtime.timer,
        ClusterView(runtime.clock, Backlog(runtime.clock, runtime.timer, pytest.fail)),
        None,  # type: ignore[arg-type]
    )
    done: list[bool] = []
    assignments.assign(TopicIdPartition(bytes(16), "t", 0), bytes(16), done.append)
    assert world.run_until(lambda: bool(done))
    assert len(controller.asked) == 2


def submitted(answer: AlterPartitionResponse) -> ErrorCode:
    """Return the result that a leader gets for its proposal."""
    world = SimWorld(1)
    sender = ForwardedAlterPartition(
        1, lambda: 5, NewerController(answer), world.host("a").runtime.timer
    )
    heard: list[Any] = []
    sender.submit(
        AlterPartitionProposal(TopicPartition("t", 0), bytes(16), 0, 0, ((1, 5),)), heard.append
    )
    assert world.run_until(lambda: bool(heard))
    error: ErrorCode = heard[0].error
    return error


def test_an_isr_proposal_is_refused() -> None:
    whole = AlterPartitionResponse(error_code=NEWER, topics=[])
    assert submitted(whole) is ErrorCode.UNKNOWN_SERVER_ERROR
    partition = PartitionDataResponse(
        partition_index=0, error_code=NEWER, leader_id=1, leader_epoch=0, isr=[], partition_epoch=0
    )
    one = AlterPartitionResponse(
        error_code=ErrorCode.NONE, topics=[TopicDataResponse(partitions=[partition])]
    )
    assert submitted(one) is ErrorCode.UNKNOWN_SERVER_ERROR
    nothing = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=[])
    assert submitted(nothing) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_controller_registration_is_retried() -> None:
    world = SimWorld(1)
    controller = NewerController(
        ControllerRegistrationResponse(error_code=NEWER, error_message=None)
    )
    registrant = ControllerRegistrant(
        ControllerRegistration(1, bytes(16), {}, {}), controller, world.host("a").runtime.timer
    )
    registrant.on_image(None, image_of(feature(), base=ClusterImage()))  # type: ignore[arg-type]
    assert world.run_until(lambda: len(controller.asked) == 2)


def test_a_vote_is_not_granted() -> None:
    partition = VotePartition(
        partition_index=0, error_code=NEWER, leader_id=1, leader_epoch=3, vote_granted=False
    )
    response = VoteResponse(
        error_code=ErrorCode.NONE,
        topics=[VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
    )
    answer = core_response(response, 1, "CONTROLLER")
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
