"""The end of client commands, in particular when their output is closed."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from barnabas.cli.common.output import duration_ms, key_values, moment_ms

SCRIPT = """
import sys
from barnabas.cli.common.output import connected
from barnabas.client.facade import Client
# There is no broker, and none is needed for what a command writes.
Client.await_broker = lambda *_args, **_options: None
with connected("127.0.0.1:1", ()):
    sys.stdin.read()
    sys.stdout.write("x" * {size})
"""
SECONDS = 60


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


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("PT0S", 0),
        ("P1DT2H3M4S", 93_784_000),
        ("P", None),
        ("15", None),
        ("-1h", None),
        ("1 h", None),
    ],
)
def test_durations_in_short_and_in_iso_form(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


def test_a_time_is_iso_or_milliseconds() -> None:
    assert moment_ms("1000", "--from") == 1000
    assert moment_ms("2026-01-31T12:00:00+00:00", "--from") == 1_769_860_800_000
    with pytest.raises(click.UsageError, match="--from noon: write milliseconds or an ISO time"):
        moment_ms("noon", "--from")


def test_a_setting_is_a_key_and_a_value() -> None:
    assert key_values(["a=1", "b=x=y"], "--set") == {"a": "1", "b": "x=y"}
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        key_values(["a"], "--set")
