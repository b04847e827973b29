"""The supervisor of a node's processes, in virtual time."""

from __future__ import annotations

import os
import signal

import pytest

from barnabas.cli.nodes.node_process import ProcessState
from barnabas.cli.nodes.process_output import LINE_BYTES_MAX
from unit.cli.supervised_node import STOP_TIMEOUT_MS, Node


def test_the_node_is_ready_with_the_addresses_of_brokers_when_all_processes_are() -> None:
    node = Node()
    for number, child in enumerate(node.children[:2]):
        child.print(f"ready host:{number}")
    node.run()
    assert node.ready == []
    node.children[2].print("ready host:2\nmetrics host:9")
    node.run()
    assert node.ready == ["host:1,host:2"]
    assert node.processes[2].metrics_address == "host:9"


def test_a_process_that_ends_comes_back_with_growing_delays_up_to_30_seconds() -> None:
    node = Node()
    node.become_ready()
    delays = []
    for _ in range(7):
        node.children[-1].status = -signal.SIGKILL
        count = len(node.children)
        waited = 0
        while len(node.children) == count:
            node.run(100)
            waited += 100
        delays.append(round(waited / 1000))
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    assert node.processes[2].end == "signal SIGKILL"
    assert node.processes[2].restarts == 7
    assert node.failures == []


def test_the_delay_is_short_again_after_a_minute_of_running() -> None:
    node = Node()
    node.become_ready()
    process = node.processes[2]
    assert [process.retry_delay_ms(), process.retry_delay_ms()] == [1_000, 2_000]
    node.run(60_000)
    assert process.retry_delay_ms() == 1_000


def test_a_process_that_ends_before_it_was_ready_ends_the_node_with_its_reason() -> None:
    node = Node()
    node.children[1].log("barnabas: the port is taken")
    node.children[1].status = 1
    node.run()
    assert node.children[2].signals == [signal.SIGTERM]
    assert node.failures == []
    node.children[2].status = 0
    node.run()
    node.children[0].status = 0
    node.run()
    assert node.failures == ["broker 101 ended with exit status 1 at its start: the port is taken"]
    assert len(node.children) == 3


def test_a_stop_ends_the_brokers_before_the_controller() -> None:
    node = Node()
    node.become_ready()
    stopped: list[bool] = []
    node.supervisor.stop(lambda: stopped.append(True))
    controller, first, second = node.children
    assert [each.signals for each in node.children] == [[], [signal.SIGTERM], [signal.SIGTERM]]
    first.status = 0
    node.run()
    assert controller.signals == []
    second.status = 0
    node.run()
    assert controller.signals == [signal.SIGTERM]
    assert stopped == []
    controller.status = 0
    node.run()
    assert stopped == [True]
    assert len(node.children) == 3


def test_a_process_that_does_not_stop_in_time_is_killed() -> None:
    node = Node()
    node.become_ready()
    node.supervisor.stop(lambda: None)
    node.children[1].status = 0
    node.run(STOP_TIMEOUT_MS + 1_000)
    assert node.children[2].signals == [signal.SIGTERM, signal.SIGKILL]
    assert node.children[1].signals == [signal.SIGTERM]


def test_a_ready_process_without_signs_of_life_is_named() -> None:
    node = Node()
    node.run(60_000)
    assert node.supervisor.why_hung(30_000) is None
    node.become_ready()
    node.run(60_000)
    for child in node.children[:2]:
        node.supervisor.on_life_sign(child.pid)
    assert node.supervisor.why_hung(30_000) == "broker 102 gives no sign of life"


def test_topics_are_created_at_the_first_start_only() -> None:
    node = Node()
    node.become_ready()
    assert "--topic=a" in node.children[1].words
    node.children[1].status = 1
    node.run(3_000)
    assert node.children[3].properties == node.children[1].properties
    assert "--topic=a" not in node.children[3].words
    assert node.processes[1].state is ProcessState.STARTING


def test_lines_without_an_end_and_long_lines_are_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = Node()
    # A pipe takes 64 KiB, so the line comes in parts.
    for _ in range(3):
        os.write(node.children[1]._log, b"x" * 40_000)
        node.run()
    node.children[1].status = 1
    node.run()
    shown = capsys.readouterr().err.splitlines()
    assert [line.count("x") for line in shown] == [LINE_BYTES_MAX, 120_000 - LINE_BYTES_MAX]
    assert all(line.startswith("broker 101 | x") for line in shown)
