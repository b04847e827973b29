"""Runs Apache Kafka's shell tools one after another in one Java process.

Most of the time of a tool is the start of Java, which a test with many tools needs only once.
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Self

from jvm.java import TIMEOUT_S, java_command

SOURCE = Path(__file__).parent / "ToolHost.java"
TOOLS = "org.apache.kafka.tools."


class ToolHost:
    """A Java process that runs tools; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*java_command("kafka-tools", source=SOURCE), SOURCE.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(
        self, tool: str, *words: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the main method of a tool to its end; the caller checks the output and the status.

        Args:
            tool: the class, either below org.apache.kafka.tools or with its full name.
            words: the arguments.
            stdin: the complete standard input; empty if None.
        """
        if not tool.startswith(("kafka.", "org.")):
            tool = TOOLS + tool
        request = {"tool": tool, "words": words, "stdin": stdin or ""}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        # A tool that does not end would block the whole run.
        guard = threading.Timer(TIMEOUT_S, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert line, f"{tool} {words} ended the process, or took {TIMEOUT_S} s"
        result = json.loads(line)
        return subprocess.CompletedProcess(
            [tool, *words], result["status"], result["out"], result["err"]
        )

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
