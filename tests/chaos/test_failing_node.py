"""System calls that fail and a clock that jumps in a node, controlled by a test."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.testing.cluster_process import ClusterProcess
from chaos.chaos_node import ChaosNode
from chaos.failing_node import (
    CONVERSION_BYTES,
    TIMER,
    FailingCalls,
    FaultControl,
    InjectedFaults,
    InjectedTimerError,
    ShiftedTime,
    failing_operation,
    limit_conversions,
)
from chaos.stress import TOPIC, make_topic
from waiting import PATIENCE_S, eventually

HOUR_MS = 3_600_000


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


def write_control(control: Path, faults: InjectedFaults) -> None:
    control.write_text(json.dumps(asdict(faults)))


def test_a_node_of_a_campaign_has_little_memory_for_conversions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = ConversionQueue.__init__
    # The test ends with the usual default.
    monkeypatch.setattr(create, "__defaults__", create.__defaults__)
    nothing: Any = None
    usual = ConversionQueue(nothing, nothing)._held_bytes_max
    limit_conversions()
    assert ConversionQueue(nothing, nothing)._held_bytes_max == CONVERSION_BYTES < usual


def test_nothing_fails_without_a_control_file(control: Path, tmp_path: Path) -> None:
    calls = FailingCalls(FaultControl(str(control)))
    descriptor = calls.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    assert calls.pwritev(descriptor, [b"ab", b"cd"], 0) == 4
    assert calls.pread(descriptor, 4, 0) == b"abcd"
    calls.fsync(descriptor)
    calls.close(descriptor)
    assert not Path(f"{control}.failed").exists()


@pytest.mark.parametrize("kind", ["open", "read", "sync", "rename"])
def test_the_named_calls_fail_until_the_control_file_goes(
    control: Path, tmp_path: Path, kind: str
) -> None:
    calls = FailingCalls(FaultControl(str(control)))
    path = str(tmp_path / "file")
    descriptor = calls.open(path, os.O_RDWR | os.O_CREAT)

    def do() -> None:
        if kind == "open":
            calls.close(calls.open(path, os.O_RDONLY))
        elif kind == "read":
            calls.pread(descriptor, 1, 0)
        elif kind == "sync":
            calls.fdatasync(descriptor)
        else:
            calls.replace(path, path)

    write_control(control, InjectedFaults((kind,), "EMFILE"))
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number says which
        do()
    assert raised.value.errno == errno.EMFILE
    assert calls.pwrite(descriptor, b"x", 0) == 1
    assert Path(f"{control}.failed").read_text() == f"{kind} EMFILE {path}\n"
    control.unlink()
    do()


def test_a_write_fails_at_once_or_after_half_of_the_bytes(control: Path, tmp_path: Path) -> None:
    calls = FailingCalls(FaultControl(str(control)))
    descriptor = calls.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    write_control(control, InjectedFaults(("write",), "ENOSPC"))
    results = set()
    for _ in range(50):
        try:
            results.add(calls.pwrite(descriptor, b"abcd", 0))
        except OSError as error:
            results.add(-(error.errno or 0))
    assert results == {-errno.ENOSPC, 2}


def test_calls_on_other_paths_and_outside_the_share_succeed(control: Path, tmp_path: Path) -> None:
    calls = FailingCalls(FaultControl(str(control)))
    one, other = (
        calls.open(str(tmp_path / name), os.O_RDWR | os.O_CREAT) for name in ("one", "other")
    )
    write_control(control, InjectedFaults(("sync",), "EIO", share=0.3, paths="one$"))
    failed = 0
    for _ in range(200):
        calls.fsync(other)
        try:
            calls.fsync(one)
        except OSError:
            failed += 1
    assert 20 < failed < 110


def test_the_wall_clock_is_ahead_and_the_monotonic_one_is_not(control: Path) -> None:
    clock = ShiftedTime(FaultControl(str(control)))
    write_control(control, InjectedFaults(clock_ahead_ms=HOUR_MS))
    before_ns = clock.monotonic()
    ahead_ns = clock.time_ns()
    control.unlink()
    assert 0.9 < (ahead_ns - clock.time_ns()) / 1e6 / HOUR_MS <= 1
    assert clock.monotonic() - before_ns < PATIENCE_S


def test_operations_of_timers_raise_while_the_control_file_names_them(control: Path) -> None:
    operation = failing_operation(FaultControl(str(control)), ("session", "a"), lambda: "done")
    assert operation() == "done"
    write_control(control, InjectedFaults((TIMER,)))
    with pytest.raises(InjectedTimerError):
        operation()
    control.unlink()
    assert operation() == "done"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    settings = {"log.message.timestamp.type": "LogAppendTime"}
    with ClusterProcess(1, 0, tmp_path, settings, None, ChaosNode) as cluster:
        make_topic(cluster, 1, 1)
        yield cluster


def produce(cluster: ClusterProcess) -> int:
    """Return the timestamp that the broker gave the record, ms."""
    timestamps: list[int] = []

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        timestamps.append(message.timestamp()[1])

    config = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 60_000, "log_level": 0}
    producer = confluent_kafka.Producer(config)
    producer.produce(TOPIC, b"value", on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    return timestamps[0]


@pytest.mark.conformance
def test_a_real_node_gets_the_failing_calls_and_the_shifted_clock(cluster: ClusterProcess) -> None:
    node = cluster.node(1)
    assert isinstance(node, ChaosNode)
    usual_ms = produce(cluster)
    node.set_faults(InjectedFaults(clock_ahead_ms=-100 * HOUR_MS))
    assert produce(cluster) < usual_ms - 99 * HOUR_MS
    assert node.turns().longest_cpu_ms >= 0
    node.set_faults(InjectedFaults(("write",), "ENOSPC", paths=TOPIC))
    config = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 5000, "log_level": 0}
    producer = confluent_kafka.Producer(config)
    producer.produce(TOPIC, b"value")
    # Its only directory is lost to it.
    eventually(lambda: (producer.poll(0.1), not node.is_running)[1], "the node goes on")
    assert any("write ENOSPC" in line for line in node.failed_calls())
    node.start()
    assert produce(cluster) >= usual_ms
