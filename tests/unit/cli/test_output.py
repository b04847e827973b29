"""The end of client commands, in particular when their output is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import click
import pytest

from barnabas.cli.common.output import ClientOptions, connected, key_values, moment_ms
from barnabas.client.errors import ClientError, UnknownPartitionError, UnknownTopicError
from barnabas.client.facade import Client

SCRIPT = """
import sys
from barnabas.cli.common.output import ClientOptions, connected
from barnabas.client.facade import Client
# There is no broker, and none is needed for what a command writes.
Client.await_broker = lambda *_args, **_options: None
with connected(ClientOptions("127.0.0.1:1")):
    sys.stdin.read()
    sys.stdout.write("x" * {size})
"""
SECONDS = 60


def test_a_command_whose_reader_is_gone_succeeds() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli.main", "version"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            timeout=SECONDS,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_output_is_neither_a_failure_nor_a_traceback() -> None:
    for size in (10, 1_000_000):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT.format(size=size)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
            )
        finally:
            os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_time_is_iso_or_milliseconds() -> None:
    assert moment_ms("1000", "--from") == 1000
    assert moment_ms("2026-01-31T12:00:00+00:00", "--from") == 1_769_860_800_000
    with pytest.raises(click.UsageError, match="--from noon: write milliseconds or an ISO time"):
        moment_ms("noon", "--from")


def test_a_setting_is_a_key_and_a_value() -> None:
    assert key_values(["a=1", "b=x=y"], "--set") == {"a": "1", "b": "x=y"}
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        key_values(["a"], "--set")


@pytest.fixture
def without_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that finds the topics flights and orders without a broker."""
    monkeypatch.setattr(Client, "await_broker", lambda *_args, **_options: None)
    monkeypatch.setattr(Client, "topics", lambda _client: ["flights", "orders"])


def error_of(error: ClientError, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command prints when it ends with this error."""
    with pytest.raises(SystemExit), connected(ClientOptions("127.0.0.1:1")):
        raise error
    return capsys.readouterr().err


@pytest.mark.usefixtures("without_broker")
def test_a_misspelled_topic_is_answered_with_similar_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = error_of(UnknownTopicError("flihgts"), capsys)
    assert "flihgts: UNKNOWN_TOPIC_OR_PARTITION (no such topic; did you mean flights?" in said
    assert "did you mean" not in error_of(UnknownTopicError("billing"), capsys)
    said = error_of(UnknownPartitionError("flights", 7, 3), capsys)
    assert "flights has partitions 0 to 2" in said


@pytest.mark.usefixtures("without_broker")
def test_a_failed_list_of_topics_does_not_hide_the_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_client: Any) -> list[str]:
        raise TimeoutError

    monkeypatch.setattr(Client, "topics", fail)
    assert "flihgts: UNKNOWN_TOPIC_OR_PARTITION" in error_of(UnknownTopicError("flihgts"), capsys)
