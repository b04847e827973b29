"""The registration of a broker: which requests it sends, and what changes its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.server.controller_access.registration import (
    TRANSITIONS,
    Event,
    Registrant,
    Registration,
    ShutdownLimits,
    State,
)
from barnabas.sim.world import SimWorld

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_MS = 2_000


class Scene:
    """A registration, and a controller whose responses the test gives."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.host = self.world.host("a")
        self.pending: list[tuple[Any, Callable[[Any], None]]] = []
        self.unfenced = 0
        self.left = 0
        broker = Registrant(
            node_id=1,
            cluster_id="cluster",
            incarnation_id=bytes(16),
            endpoints=[],
            rack=None,
            directories=[],
            heartbeat_interval_ms=INTERVAL_MS,
            shutdown=ShutdownLimits(ms_max=10_000, silence_ms_max=1_000, retry_ms=50),
        )
        self.registration = Registration(
            broker,
            self,  # type: ignore[arg-type]
            self.host.runtime.timer,
            lambda: 7,
            self.on_unfenced,
        )

    def send(self, request: Any, on_done: Callable[[Any], None]) -> None:
        self.pending.append((request, on_done))

    def on_unfenced(self) -> None:
        self.unfenced += 1

    def on_left(self) -> None:
        self.left += 1

    def request(self) -> Any:
        """Return the request whose response is pending: never more than one."""
        assert len(self.pending) == 1, self.pending
        return self.pending[0][0]

    def wait_for_request(self) -> Any:
        assert self.world.run_until(lambda: bool(self.pending))
        return self.request()

    def respond(self, response: Any) -> None:
        self.pending.pop()[1](response)

    def accept(self, epoch: int = 5) -> None:
        assert isinstance(self.request(), BrokerRegistrationRequest)
        self.respond(BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=epoch))

    def respond_to_heartbeat(self, *, is_fenced: bool = False, should_leave: bool = False) -> None:
        assert isinstance(self.request(), BrokerHeartbeatRequest)
        self.respond(
            BrokerHeartbeatResponse(
                error_code=ErrorCode.NONE, is_fenced=is_fenced, should_shut_down=should_leave
            )
        )

    def serve(self) -> None:
        self.registration.start(-1)
        self.accept()
        self.respond_to_heartbeat()
        assert self.unfenced == 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_broker_registers_and_is_unfenced_by_a_heartbeat(scene: Scene) -> None:
    scene.registration.start(-1)
    scene.accept(epoch=5)
    scene.respond_to_heartbeat(is_fenced=True)
    assert scene.unfenced == 0
    assert scene.wait_for_request().broker_epoch == 5
    scene.respond_to_heartbeat()
    assert scene.unfenced == 1


def test_an_unregistered_broker_registers_again(scene: Scene) -> None:
    scene.serve()
    scene.registration.on_unregistered()
    scene.accept(epoch=9)
    assert scene.request().broker_epoch == 9
    scene.respond_to_heartbeat()
    assert scene.unfenced == 1


def test_a_pending_heartbeat_ends_before_the_broker_registers_again(scene: Scene) -> None:
    scene.serve()
    scene.wait_for_request()
    scene.registration.on_unregistered()
    scene.respond_to_heartbeat()
    scene.accept(epoch=9)


def test_a_broker_that_is_removed_while_it_registers_again_registers_once_more(
    scene: Scene,
) -> None:
    scene.serve()
    scene.registration.on_unregistered()
    scene.registration.on_unregistered()
    scene.accept(epoch=9)
    scene.accept(epoch=11)
    assert scene.request().broker_epoch == 11


def test_a_lost_connection_does_not_replace_the_retry_of_a_registration(scene: Scene) -> None:
    scene.serve()
    scene.registration.on_unregistered()
    scene.respond(BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER))
    scene.registration.heartbeat_now()
    assert isinstance(scene.wait_for_request(), BrokerRegistrationRequest)


def test_an_outdated_heartbeat_is_followed_by_another_one_at_once(scene: Scene) -> None:
    scene.serve()
    scene.wait_for_request()
    scene.registration.heartbeat_now()
    scene.respond_to_heartbeat()
    before_ms = scene.host.clock.monotonic_ms()
    scene.wait_for_request()
    assert scene.host.clock.monotonic_ms() == before_ms


def test_a_controlled_shutdown_ends_when_the_controller_allows_it(scene: Scene) -> None:
    scene.serve()
    scene.registration.shut_down(scene.on_left)
    assert scene.request().want_shut_down
    scene.respond_to_heartbeat()
    assert scene.left == 0
    scene.wait_for_request()
    scene.respond_to_heartbeat(should_leave=True)
    assert scene.left == 1


def test_a_controlled_shutdown_ends_without_a_response(scene: Scene) -> None:
    scene.serve()
    scene.registration.shut_down(scene.on_left)
    assert scene.world.run_until(lambda: scene.left == 1)
    scene.respond_to_heartbeat(should_leave=True)
    assert scene.left == 1
    assert not scene.pending


def test_a_broker_that_was_never_unfenced_leaves_at_once(scene: Scene) -> None:
    scene.registration.start(-1)
    scene.registration.shut_down(scene.on_left)
    assert scene.left == 1
    scene.accept()
    assert not scene.pending


def test_every_state_is_reached_and_can_be_stopped() -> None:
    reached = {State.NEW} | {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(State)
    assert set(TRANSITIONS) == set(State)
    assert all(row[Event.STOP] is State.STOPPED for row in TRANSITIONS.values())
