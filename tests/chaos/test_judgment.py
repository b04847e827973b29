"""Logs of nodes: injected errors are expected, others are not."""

from __future__ import annotations

import pytest

from chaos.judgment import unexpected_in

INJECTED = """\
2026-11-29 00:00:29,756 ERROR asyncio: Exception in callback on_due()
    Traceback (most recent call last):
      File "shard_timers.py", line 1, in run
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
