"""Failures of the store are logged once a minute, and those that concern all copies pause them."""

from __future__ import annotations

import logging

from barnabas.replication.remote.store_health import PAUSE_MS, StoreHealth
from barnabas.sim.world import sim_runtime
from barnabas.storage.remote.remote_storage import (
    RemoteFullError,
    RemoteMissingError,
    RemoteUnavailableError,
)


def test_a_kind_of_failure_is_logged_once_a_minute(caplog) -> None:
    world, runtime = sim_runtime(1)
    health = StoreHealth(runtime.clock)
    for _ in range(5):
        health.on_failure("copy", RemoteUnavailableError("timeout"))
    health.on_failure("copy", RemoteMissingError("gone"))
    assert len(caplog.records) == 2
    world.run_for(61_000)
    health.on_failure("copy", RemoteUnavailableError("timeout"))
    assert "earlier_failures=4" in caplog.records[-1].getMessage()
    assert health.failures == 7


def test_failures_of_single_calls_pause_nothing() -> None:
    _, runtime = sim_runtime(1)
    health = StoreHealth(runtime.clock)
    health.on_failure("copy", RemoteUnavailableError("timeout"))
    assert (health.pause_ms, health.pause_reason) == (0.0, "")


def test_a_full_store_pauses_for_a_while(caplog) -> None:
    world, runtime = sim_runtime(1)
    health = StoreHealth(runtime.clock)
    health.on_failure("copy", RemoteFullError("no space"))
    assert (health.pause_ms, health.pause_reason) == (PAUSE_MS, "no space")
    assert caplog.records[-1].levelno == logging.ERROR
    world.run_for(PAUSE_MS)
    assert (health.pause_ms, health.pause_reason) == (0.0, "")


def test_errors_that_no_store_should_raise_have_a_traceback(caplog) -> None:
    _, runtime = sim_runtime(1)
    StoreHealth(runtime.clock).on_failure("copy", KeyError("bug"))
    assert caplog.records[-1].exc_info
