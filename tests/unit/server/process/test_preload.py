"""Modules that a broker needs later are imported in the background."""

from __future__ import annotations

import ast
import importlib.util
import logging
from pathlib import Path

import pytest

import barnabas
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, SERVED_APIS
from barnabas.server.process.preload import COMPILED_READER, Preloader, needed_modules
from barnabas.sim.world import sim_runtime


def test_every_preloaded_module_exists_and_every_handler_is_preloaded() -> None:
    names = needed_modules()
    assert names[-1] == COMPILED_READER
    assert all(importlib.util.find_spec(name) is not None for name in names[:-1])
    for api in (*SERVED_APIS.values(), *CONTROLLER_APIS.values()):
        assert f"barnabas.server.handlers.{api.module}" in names
    assert "barnabas.protocol.messages.fetch" in names


# Imported within functions that run before the broker is ready, and never later.
AT_START = {
    "barnabas.network.framed_protocol",
    # Nodes that log in at other nodes connect to a controller before they are ready.
    "barnabas.network.sasl_session",
    "barnabas.protocol.messages",
    "barnabas.raft.transport.channel_transport",
    "barnabas.raft.voter_set",
    "barnabas.runtime.tls.handshakes",
    "barnabas.runtime.tls.tls_sockets",
    "barnabas.runtime.tls.tls_stream",
    "barnabas.server.listeners.listener_tls",
    "barnabas.server.listeners.tls_principals",
    "barnabas.server.process.broker_server",
    "barnabas.server.startup.cluster_ids",
    "barnabas.server.process.controller_listeners",
    "barnabas.server.controller_access.controller_registrant",
    "barnabas.server.process.controller_server",
    "barnabas.server.security.authorizer.guard",
    "barnabas.metrics.metrics_listener",
    "barnabas.server.quorum.quorum_watch",
    "barnabas.server.metrics.client_telemetry",
    "barnabas.server.controller_access.forwarding",
    "barnabas.runtime.web",
    "barnabas.server.configs.listener_sasl",
    "barnabas.sasl.token_login",
    "barnabas.server.configs.oauth_settings",
    "barnabas.server.security.sasl.signed_tokens",
    "barnabas.server.security.sasl.mechanisms",
    "barnabas.server.security.sasl.gate",
    "barnabas.server.security.sasl.node_login",
    "barnabas.waiting.timing_wheel",
}
# Imported only on brokers with links. Their client would cost all other brokers memory.
WITH_LINKS = {
    "barnabas.client.config",
    "barnabas.client.errors",
    "barnabas.replication.links.mirror_replicas",
    "barnabas.server.links.promotions",
    "barnabas.server.links.link",
}
# Imported only on brokers with a remote tier.
WITH_TIER = (
    "barnabas.replication.fetcher.tiered_partitions",
    "barnabas.replication.remote.",
    "barnabas.replication.requests.delayed_offset_lookups",
    "barnabas.replication.requests.delayed_remote_fetch",
    "barnabas.server.metrics.remote_metrics",
    "barnabas.server.process.tiered_storage",
    "barnabas.server.remote.",
    "barnabas.storage.remote.",
)
# Packages that a broker does not run.
OTHERS = {"aio.py", "cli", "client", "console", "serializers", "sim", "spark", "testing"}


def imported_within_functions() -> set[str]:
    """Modules of ours that functions of the broker import."""
    found: set[str] = set()
    root = Path(barnabas.__file__).parent
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] in OTHERS:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                found |= {
                    node.module or ""
                    for node in ast.walk(function)
                    if isinstance(node, ast.ImportFrom)
                }
    return {name for name in found if name.startswith("barnabas.")}


def test_lazily_imported_modules_are_preloaded() -> None:
    found = {name for name in imported_within_functions() if not name.startswith(WITH_TIER)}
    assert found <= AT_START | WITH_LINKS | set(needed_modules())


def test_a_failed_import_is_retried_after_the_other_modules(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, runtime = sim_runtime(1)
    tried: list[str] = []

    def import_module(name: str) -> None:
        tried.append(name)
        if tried.count("b") == 1 and name == "b":
            raise OSError(24, "Too many open files")

    with caplog.at_level(logging.INFO):
        Preloader(runtime.timer, ["a", "b", "c"], import_module).start()
        assert world.run_until(lambda: "Background imports finished" in caplog.text)
    assert tried == ["a", "b", "c", "b"]
    assert "Too many open files" in caplog.text
