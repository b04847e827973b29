"""The disk of the metadata log fails: the node stops with one clear message."""

from __future__ import annotations

import errno
import logging

import pytest

from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.runtime.loop import ProcessControl, Runtime, run
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.sim.disk import DiskFault
from unit.server.simulated_broker import SimulatedBroker, produce_request

DATA = "/data"
# Which event of the load meets the failure first.
MOMENTS = range(0, 60, 3)
# Checkpoints are written every 5 s: one of them meets the disk in any case.
STEPS_MS = 10_000.0


def fail_disk(broker: SimulatedBroker, operation: str, error: int) -> None:
    broker.host.disk.faults.append(DiskFault(DATA, (operation,), error))


def load(broker: SimulatedBroker) -> None:
    """Start writes of topics and records, without waiting."""
    for number in range(8):
        topic = CreatableTopic(
            name=f"t{number}", num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        broker.client.send(CreateTopicsRequest(topics=[topic], timeout_ms=3000), 5)
        broker.client.send(produce_request("load", broker.batch(b"x")), 9)


@pytest.mark.parametrize(
    ("operation", "error", "remedy"),
    [
        ("write", errno.ENOSPC, "The disk is full: make room, then start the node again"),
        ("write", errno.EIO, "Find the disk's errors in the kernel's log"),
        ("sync", errno.EIO, "Find the disk's errors in the kernel's log"),
    ],
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_that_fails_at_any_moment_ends_the_node_with_one_message_and_no_traceback(
    moment: int, operation: str, error: int, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = SimulatedBroker(seed=1 + moment)
    broker.make_topic("load")
    load(broker)
    until = broker.world.scheduler.events_run + moment
    broker.world.run_until(lambda: broker.world.scheduler.events_run >= until)
    fail_disk(broker, operation, error)
    load(broker)
    # An exception of a callback would be raised here.
    broker.world.run_for(STEPS_MS)
    (failure,) = broker.failures
    assert isinstance(failure, NodeFailedError)
    assert str(failure).startswith(f"Data directory {DATA} failed: ")
    assert remedy in str(failure)
    critical = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert [str(failure) in each.getMessage() for each in critical] == [True]
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_disk_failure_during_the_stop_is_logged_and_the_stop_ends(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = SimulatedBroker()
    broker.make_topic("load")
    load(broker)
    fail_disk(broker, operation, errno.ENOSPC)
    stopped: list[bool] = []
    broker.node.stop(lambda: stopped.append(True))
    assert broker.world.run_until(lambda: bool(stopped))
    (failure,) = broker.failures
    assert str(failure).startswith(f"Data directory {DATA} failed: ")
    assert not [each for each in caplog.records if each.exc_info]


def test_a_disk_full_at_the_start_is_logged_with_its_directory() -> None:
    broker = SimulatedBroker()
    broker.stop()
    broker.host.start()
    broker.host.disk.faults.append(DiskFault(f"{DATA}/__cluster", ("write",), errno.ENOSPC))
    try:
        broker.start()
    except NodeFailedError as failure:
        told = str(failure)
    except AssertionError:
        (told,) = map(str, broker.failures)
    assert told.startswith(f"Data directory {DATA} failed: ")
    assert "make room" in told


def test_work_submitted_when_the_process_ends_is_dropped() -> None:
    ran: list[str] = []

    def main(runtime: Runtime, control: ProcessControl) -> None:
        def after_the_end() -> None:
            runtime.executor.submit(lambda: ran.append("late"), lambda *_: ran.append("told"))

        def fail() -> None:
            control.fail(NodeFailedError("the disk is full"))
            runtime.timer.call_soon(lambda: runtime.timer.call_soon(after_the_end))

        runtime.timer.call_soon(fail)

    with pytest.raises(NodeFailedError, match="the disk is full"):
        run(main)
    assert ran == []


def test_errors_in_the_last_turn_of_a_failed_process_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def main(runtime: Runtime, control: ProcessControl) -> None:
        def fail() -> None:
            control.fail(NodeFailedError("the disk is full"))
            raise OSError(errno.ENOSPC, "no space")

        runtime.timer.call_soon(fail)

    with pytest.raises(NodeFailedError, match="the disk is full"):
        run(main)
    assert not caplog.records
