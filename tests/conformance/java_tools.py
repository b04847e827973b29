"""Apache Kafka's shell tools for one broker, with access to their output."""

from __future__ import annotations

import re
import time

from conformance import client_scenarios
from conformance.client_program import ClientProgram
from jvm.tool_host import ToolHost
from waiting import eventually

CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"


class Tools:
    """Runs tools against a broker.

    Args:
        host: runs the tools.
        bootstrap: HOST:PORT of the broker.
        is_kafka: whether the broker is Apache Kafka.
    """

    def __init__(self, host: ToolHost, bootstrap: str, is_kafka: bool) -> None:
        self.host = host
        self.bootstrap = bootstrap
        self.is_kafka = is_kafka
        self._program = ClientProgram([], bootstrap)

    def run(self, tool: str, *words: str, stdin: str | None = None) -> str:
        """Run a tool that must succeed, and return its output."""
        words = ("--bootstrap-server", self.bootstrap, *words)
        done = self.host.run(tool, *words, stdin=stdin)
        assert done.returncode == 0, f"{tool} {words}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout

    def refused(self, tool: str, *words: str) -> str:
        """Run a tool that must fail, and return its complete output."""
        done = self.host.run(tool, "--bootstrap-server", self.bootstrap, *words)
        assert done.returncode == 1, f"{tool} {words}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def await_output(self, pattern: str, tool: str, *words: str) -> None:
        """Run a tool until its output matches: brokers may apply changes after the response."""
        printed = ""

        def is_printed() -> bool:
            nonlocal printed
            printed = self.run(tool, *words)
            return re.search(pattern, printed) is not None

        eventually(is_printed, lambda: printed)

    def rows(self, tool: str, *words: str) -> list[list[str]]:
        """Return the words of each line of the output, without empty lines."""
        return [line.split() for line in self.run(tool, *words).splitlines() if line.strip()]

    def table(self, tool: str, *words: str) -> list[list[str]]:
        """Return the rows without the line of headings."""
        return self.rows(tool, *words)[1:]

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with a unique name."""
        return client_scenarios.make_topic(self._program, partitions, **config)

    def fill(
        self, topic: str, values: list[str], partition: int = 0, first_timestamp: int = 0
    ) -> None:
        """Produce records with timestamps one second apart, by default from a minute ago."""
        began = first_timestamp or int(time.time() * 1000) - 60_000
        client_scenarios.fill(
            self._program,
            topic,
            values,
            partition=partition,
            timestamp=lambda number: began + 1000 * number,
        )

    def offsets(self, topic: str, at: str = "latest") -> dict[int, int]:
        """Return the offset of each partition, as GetOffsetShell prints it."""
        printed = self.run("GetOffsetShell", "--topic", topic, "--time", at)
        found = re.findall(rf"^{topic}:(\d+):(\d+)$", printed, re.MULTILINE)
        return {int(partition): int(offset) for partition, offset in found}
