"""Kafka Connect in distributed mode with Debezium's connector for PostgreSQL.

The worker writes in transactions (KIP-618): the changes and the position in PostgreSQL's log to
which they belong are committed together, so a killed worker loses nothing and repeats nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from barnabas.testing.free_ports import HOST, free_ports
from postgres import DATABASE, USER, Postgres
from processes import ExampleError, Process, wait_until

ROOT = Path(__file__).parents[2]
POM = Path(__file__).parent / "pom.xml"
JARS = ROOT / "build" / "change-data-capture"
CONNECTOR = "airline"
TOPIC_PREFIX = "cdc"
SLOT = "barnabas_cdc"
JSON = "org.apache.kafka.connect.json.JsonConverter"
# A machine under load needs minutes.
START_SECONDS_MAX = 300

WORKER = {
    "group.id": "connect",
    "listeners": "",
    "plugin.discovery": "service_load",
    "exactly.once.source.support": "enabled",
    # A killed worker's connectors go to the next one after this time.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
    # A killed worker's open transaction must not hold readers back longer than this.
    "producer.transaction.timeout.ms": "10000",
    "producer.compression.type": "lz4",
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    # Each value has its schema: a new column is known from the first row that has it.
    "value.converter": JSON,
    "value.converter.schemas.enable": "true",
    # The headers name the old and new primary key of a row whose key changes.
    "header.converter": JSON,
    "header.converter.schemas.enable": "false",
}


def fetch_jars() -> str:
    """Return Java's class path; Maven fetches the jars the first time.

    Raises:
        ExampleError: Maven is missing, or failed.
    """
    fetched = JARS / POM.name
    if not fetched.exists() or fetched.read_bytes() != POM.read_bytes():
        shutil.rmtree(JARS, ignore_errors=True)
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise ExampleError("Java and Maven are needed (Debian: apt install maven)")
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(POM), "package"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExampleError(f"mvn could not fetch the jars of {POM}:\n{done.stdout}")
        # Written when all jars are there.
        shutil.copyfile(POM, fetched)
    return f"{JARS}/*"


def topic_of(table: str) -> str:
    """Return the topic of a table's changes."""
    return f"{TOPIC_PREFIX}.public.{table}"


class ConnectWorker:
    """One Connect process and its REST interface."""

    def __init__(self, bootstrap: str, directory: Path, logs: Path) -> None:
        (port,) = free_ports(1)
        self._address = f"http://{HOST}:{port}"
        keys = {**WORKER, "bootstrap.servers": bootstrap, "listeners": self._address}
        for kind in ("config", "offset", "status"):
            keys[f"{kind}.storage.topic"] = f"connect-{kind}"
            keys[f"{kind}.storage.replication.factor"] = "1"
        keys["offset.storage.partitions"] = "1"
        file = directory / "connect.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = ["java", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-Dlog4j2.level=WARN", "-cp", fetch_jars()]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        self.process = Process("connect", command, logs)

    def await_started(self) -> None:
        """Wait until REST answers."""
        wait_until(
            lambda: self._ask("/connectors") is not None,
            "Kafka Connect answers",
            START_SECONDS_MAX,
            self.process,
        )

    def capture(self, server: Postgres, tables: list[str]) -> None:
        """Create the connector: a snapshot of the tables, then all their changes."""
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": HOST,
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": server.password,
            "database.dbname": DATABASE,
            "slot.name": SLOT,
            "publication.autocreate.mode": "filtered",
            "table.include.list": ",".join(f"public.{name}" for name in tables),
            "topic.prefix": TOPIC_PREFIX,
            # TRUNCATE is an event too; Debezium leaves it out otherwise.
            "skipped.operations": "none",
            "poll.interval.ms": "50",
        }
        wait_until(
            lambda: self._ask(f"/connectors/{CONNECTOR}/config", config) is not None,
            "the connector is created",
            START_SECONDS_MAX,
            self.process,
        )

    def await_running(self) -> None:
        """Wait until the connector's task runs.

        Raises:
            ExampleError: the task has failed; the message has the first lines of its trace.
        """

        def runs() -> bool:
            status = self._ask(f"/connectors/{CONNECTOR}/status") or {"tasks": []}
            for task in status["tasks"]:
                if task["state"] == "FAILED":
                    raise ExampleError(f"the connector has failed: {task['trace'][:2000]}")
            return [task["state"] for task in status["tasks"]] == ["RUNNING"]

        wait_until(runs, "the connector's task runs", START_SECONDS_MAX, self.process)

    def _ask(self, path: str, put: dict[str, str] | None = None) -> Any:
        """Return the answer of REST; None if Connect does not answer yet."""
        body = None if put is None else json.dumps(put).encode()
        request = urllib.request.Request(
            self._address + path,
            body,
            {"Content-Type": "application/json"},
            method="GET" if put is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            # 404: not known yet; 409: a rebalance goes on; 500: it starts.
            if error.code in {404, 409, 500}:
                return None
            raise ExampleError(f"Connect answers {error.code}: {error.read()!r}") from error
        except OSError:
            return None
