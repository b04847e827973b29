"""Load by Kafka's own VerifiableProducer and VerifiableConsumer, and a check of what they report.

Both run until they are stopped, and write a line of JSON for each event.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.load import read_values
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.tool_host import TOOLS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Records per second.
RATE = 20
GROUP = "java-group"
WITHIN_S = 300.0
# Each look reads the whole logs of the clients, on processors that the brokers need.
PAUSE_S = 0.5


class Report(NamedTuple):
    """What the two clients have done, and the violations that were found."""

    acknowledged: int
    read: int
    problems: list[str]


class VerifiableClients:
    """A Java producer with acks=all, and a Java consumer that commits after each poll.

    Args:
        bootstrap: the addresses of the cluster.
        file: properties of Java clients for this cluster.
        topic: an existing topic, which only this producer writes.
        directory: gets the output of the clients.
    """

    def __init__(self, bootstrap: str, file: Path, topic: str, directory: Path) -> None:
        self._topic = topic
        directory.mkdir(parents=True, exist_ok=True)
        words = ("--bootstrap-server", bootstrap, "--topic", topic)
        self._producer = self._start(
            "VerifiableProducer", directory, *words, "--throughput", str(RATE), "--acks", "-1",
            "--producer.config", str(file),
        )  # fmt: skip
        self._consumer = self._start(
            "VerifiableConsumer", directory, *words, "--group-id", GROUP, "--verbose",
            "--reset-policy", "earliest", "--consumer.config", str(file),
        )  # fmt: skip

    @staticmethod
    def _start(tool: str, directory: Path, *words: str) -> JavaApplication:
        command = [*java_command("kafka-tools", log_level="ERROR"), TOOLS + tool, *words]
        return JavaApplication(command, directory / f"{tool}.log")

    def counts(self) -> tuple[int, int]:
        """Return how many records are acknowledged and read so far."""
        return (
            self._producer.log().count('"producer_send_success"'),
            self._consumer.log().count('"record_data"'),
        )

    def await_more(self) -> None:
        """Wait until more records are acknowledged and read."""
        acknowledged, read = self.counts()

        def have_more() -> bool:
            now = self.counts()
            return now[0] > acknowledged and now[1] > read

        eventually(have_more, self._describe, WITHIN_S, PAUSE_S)

    def _describe(self) -> str:
        logs = (self._producer.log()[-1500:], self._consumer.log()[-1500:])
        return f"no progress of the Java clients: {self.counts()}\n{logs[0]}\n{logs[1]}"

    def finish(self, keys: Mapping[str, str], bootstrap: str, partitions: int) -> Report:
        """Stop the producer, let the consumer read everything, and check what both report."""
        self._producer.terminate()
        acknowledged = {
            (each["partition"], each["offset"]): each["value"]
            for each in _events(self._producer.log(), "producer_send_success")
        }
        problems = [str(each) for each in _events(self._producer.log(), "producer_send_error")]
        log = {
            (partition, offset): (value or b"").decode()
            for partition in range(partitions)
            for offset, value in read_values(bootstrap, self._topic, partition, keys)
        }
        eventually(lambda: self._read() >= log.keys(), self._describe, WITHIN_S, PAUSE_S)
        self._consumer.terminate()
        problems += [
            f"{place}: {value!r} is acknowledged, the log has {log.get(place)!r}"
            for place, value in acknowledged.items()
            if log.get(place) != value
        ]
        if len(set(log.values())) < len(log):
            problems.append(f"{len(log) - len(set(log.values()))} values are twice in the log")
        problems += self._reading_problems(log)
        return Report(len(acknowledged), len(self._read()), problems)

    def _read(self) -> set[tuple[int, int]]:
        found = _events(self._consumer.log(), "record_data")
        return {(each["partition"], each["offset"]) for each in found}

    def _reading_problems(self, log: Mapping[tuple[int, int], str]) -> list[str]:
        """Check the read values, and that committed offsets do not go back."""
        problems = [
            f"{each['partition']}, {each['offset']}: read {each['value']!r}"
            for each in _events(self._consumer.log(), "record_data")
            if log.get((each["partition"], each["offset"])) != each["value"]
        ]
        committed: dict[int, int] = {}
        for event in _events(self._consumer.log(), "offsets_committed"):
            for each in event["offsets"] if event["success"] else ():
                before = committed.get(each["partition"], 0)
                committed[each["partition"]] = each["offset"]
                if each["offset"] < before:
                    problems.append(f"committed {each['offset']} after {before}: {event}")
        return problems

    def close(self) -> None:
        """Kill both clients."""
        self._producer.kill()
        self._consumer.kill()


def _events(printed: str, name: str) -> Iterator[dict[str, Any]]:
    for line in printed.splitlines():
        if line.startswith("{") and f'"{name}"' in line and line.endswith("}"):
            yield json.loads(line)
