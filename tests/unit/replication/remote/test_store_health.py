"""Failures of the store are logged once a minute, and those that concern all copies pause them."""

from __future__ import annotations

import logging

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.replication.remote.store_health import PAUSE_MS, StoreHealth, failure_kind
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
    assert "fix=check that the store runs" in caplog.records[-1].getMessage()
    assert health.failures == {CopyCause.UNAVAILABLE: 6, CopyCause.MISSING: 1}


def test_failures_of_single_calls_pause_nothing() -> None:
    _, runtime = sim_runtime(1)
    health = StoreHealth(runtime.clock)
    health.on_failure("copy", RemoteUnavailableError("timeout"))
    assert (health.pause_ms, health.pause_cause) == (0.0, None)


def test_a_full_store_pauses_for_a_while(caplog) -> None:
    world, runtime = sim_runtime(1)
    health = StoreHealth(runtime.clock)
    health.on_failure("copy", RemoteFullError("no space"))
    assert (health.pause_ms, health.pause_cause) == (PAUSE_MS, CopyCause.FULL)
    assert caplog.records[-1].levelno == logging.ERROR
    world.run_for(PAUSE_MS)
    assert (health.pause_ms, health.pause_cause) == (0.0, None)


def test_errors_that_no_store_should_raise_have_a_traceback(caplog) -> None:
    _, runtime = sim_runtime(1)
    StoreHealth(runtime.clock).on_failure("copy", KeyError("bug"))
    assert caplog.records[-1].exc_info


def test_errors_of_a_store_of_ones_own_have_the_kind_of_their_class() -> None:
    class ThrottledError(RemoteUnavailableError):
        pass

    assert failure_kind(ThrottledError("slow down")) is CopyCause.UNAVAILABLE
    assert failure_kind(KeyError("bug")) is CopyCause.UNEXPECTED
