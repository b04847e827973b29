"""Apache Kafka's shell tools, one after the other in one Java process.

Most of a tool's run is Java's start; a test that runs many of them pays it once.
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
        """Run a tool's main to its end; the caller judges its output and its status.

        Args:
            tool: its class below org.apache.kafka.tools, or in full.
            words: its command line.
            stdin: all of its standard input; none when None.
        """
        if not tool.startswith(("kafka.", "org.")):
            tool = TOOLS + tool
        asked = {"tool": tool, "words": words, "stdin": stdin or ""}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        # A tool that does not end would hold up the whole run.
        guard = threading.Timer(TIMEOUT_S, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert line, f"{tool} {words} took the process with it, or {TIMEOUT_S} s"
        did = json.loads(line)
        return subprocess.CompletedProcess([tool, *words], did["status"], did["out"], did["err"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
