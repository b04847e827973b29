"""A Kafka Connect worker in distributed mode, and its REST interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.testing.free_ports import free_ports
from jvm.java import QUICK, java_command
from jvm.java_application import JavaApplication
from waiting import eventually

GROUP = "connect-cluster"
INTERNAL = {name: f"connect-{name}" for name in ("config", "offset", "status")}
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE_CONNECTORS = "org.apache.kafka.connect.file.FileStream{}Connector"
# Longer than the 90 s after which Connect responds in any case.
REST_TIMEOUT_S = 120
# Settings of the broker: quick rebalances, and few partitions.
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
}


class Worker:
    """One Connect process and its REST interface."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        directory: Path,
        machine: Sequence[str] = QUICK,
        **settings: str,
    ) -> None:
        """Start a worker; `settings` are its configs, with "_" for "."."""
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        keys = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "listeners": f"http://{self.address}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "100",
            # A worker that pauses for less time keeps its tasks, and repeats no records.
            "session.timeout.ms": "8000",
            "heartbeat.interval.ms": "300",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        for kind, topic in INTERNAL.items():
            keys[f"{kind}.storage.topic"] = topic
            keys[f"{kind}.storage.replication.factor"] = "1"
        file = directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = java_command("kafka-connect", "INFO", machine)
        self.process = JavaApplication(
            [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)],
            directory / f"{name}.log",
        )

    def await_started(self) -> Worker:
        self.process.await_output("Finished starting connectors and tasks")
        return self

    def call_rest(
        self, path: str, put: dict[str, str] | None = None, method: str | None = None
    ) -> Any:
        """Return the response of the REST interface; None for a missing or busy connector."""
        body = None if put is None else json.dumps(put).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            body,
            {"Content-Type": "application/json"},
            method=method or ("GET" if put is None else "PUT"),
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as response:
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409, 500}:
                raise
            return None

    def connect(self, name: str, kind: str, **config: str) -> None:
        """Create a connector with one task."""
        words = {"connector.class": FILE_CONNECTORS.format(kind), "tasks.max": "1", **config}
        eventually(lambda: self.call_rest(f"/connectors/{name}/config", words) is not None)

    def task_runs_at(self, name: str) -> str | None:
        """Return the address of the worker that runs a connector's task."""
        tasks = (self.call_rest(f"/connectors/{name}/status") or {"tasks": []})["tasks"]
        return next((each["worker_id"] for each in tasks if each["state"] == "RUNNING"), None)

    def restart_if_failed(self, name: str) -> None:
        """Restart the task of a connector if it has failed, as an operator would."""
        tasks = (self.call_rest(f"/connectors/{name}/status") or {"tasks": []})["tasks"]
        if any(each["state"] == "FAILED" for each in tasks):
            path = f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true"
            self.call_rest(path, method="POST")

    def source_position(self) -> int | None:
        """Return the committed position of the source in its file."""
        found = (self.call_rest("/connectors/source/offsets") or {"offsets": []})["offsets"]
        return next((each["offset"]["position"] for each in found), None)
