"""Logs of nodes and clients of loads: injected errors are expected, dropped clients are not."""

from __future__ import annotations

import pytest

import barnabas
from chaos.judgment import unexpected_in, watched_clients

INJECTED = """\
2026-11-29 00:00:29,756 ERROR asyncio: Exception in callback on_due()
    Traceback (most recent call last):
      File "shard.py", line 1, in run
    chaos.failing_node.InjectedTimerError: session"""
OWN = INJECTED.replace("chaos.failing_node.InjectedTimerError: session", "KeyError: 'session'")
LINE = "2026-11-29 00:00:29,756 INFO barnabas: Started"


@pytest.mark.parametrize("log", ["", LINE, INJECTED, f"{LINE}\n{INJECTED}\n{LINE}"])
def test_a_log_with_injected_errors_only_is_expected(log: str) -> None:
    assert unexpected_in(log) == []


@pytest.mark.parametrize("log", [OWN, f"{INJECTED}\n{OWN}", f"{LINE}\n{OWN}\n{INJECTED}"])
def test_another_error_in_a_log_is_found(log: str) -> None:
    (found,) = unexpected_in(log)
    assert "KeyError" in found


def test_a_client_that_a_load_has_dropped_is_found() -> None:
    with watched_clients() as dropped:
        barnabas.Producer("127.0.0.1:1").close()
        assert dropped() == []
        barnabas.Producer("127.0.0.1:1")
        (found,) = dropped()
        assert "Producer" in found
