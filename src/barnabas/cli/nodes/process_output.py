"""Lines that the processes of a node write, and the one log that they become."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from barnabas.cli.common.printable import json_line, printable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import ProcessControl

# A longer line is cut into lines of this length.
LINE_BYTES_MAX = 64 * 1024
# Read in one turn of the loop.
_READ_BYTES = 64 * 1024


class LineReader:
    """Reads the lines of a pipe on the loop.

    Args:
        pipe: the read end, without a buffer.
        control: calls back when there is input.
        on_line: called with each line, without its end.
    """

    def __init__(
        self, pipe: IO[bytes], control: ProcessControl, on_line: Callable[[bytes], None]
    ) -> None:
        self._pipe = pipe
        self._control = control
        self._on_line = on_line
        # The beginning of a line whose end has not arrived.
        self._rest = b""
        self._is_open = True
        os.set_blocking(pipe.fileno(), False)
        control.on_input(pipe.fileno(), self._read)

    def close(self) -> None:
        """Read what has arrived, and close the pipe."""
        while self._is_open and self._read():
            pass
        self._end()

    def _read(self) -> bool:
        """Read once. Return whether there may be more."""
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line)
        while len(self._rest) > LINE_BYTES_MAX:
            self._on_line(self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]
        return True

    def _end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._control.ignore_input(self._pipe.fileno())
        self._pipe.close()
        if self._rest:
            self._on_line(self._rest)
            self._rest = b""


class NodeLog:
    """Writes the log lines of all processes to standard error, each with its process.

    Args:
        log_format: "text" or "json".
    """

    def __init__(self, log_format: str) -> None:
        self._is_json = log_format == "json"

    def write(self, kind: str, node_id: int, line: bytes) -> None:
        """Write one line of a process, without its end.

        Args:
            kind: broker or controller.
            node_id: the id of the process.
            line: the bytes that it has written.
        """
        text = printable_bytes(line).decode(errors="replace")
        if not self._is_json:
            self._print(f"{kind} {node_id} | {text}")
            return
        if text.startswith('{"') and text.endswith("}"):
            self._print(f'{{"{kind}": {node_id}, {text[1:]}')
            return
        # For example a message of Python itself.
        now = datetime.now(UTC).isoformat()
        self._print(json_line({kind: node_id, "timestamp": now, "level": "ERROR", "message": text}))

    def _print(self, text: str) -> None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except OSError:
            # The reader of the log has ended; the node continues without a log.
            return
