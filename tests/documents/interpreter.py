"""One Python process that runs the programs of a page in order, in one namespace.

Run as a program it is that process: it takes a program as a line of JSON, and writes the mark
behind the program's output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_MARK = "\x1d"


class Interpreter:
    """The process, as the test sees it."""

    def __init__(self, python: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._errors = directory / ".bin" / "python.err"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-u", __file__],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(self, program: str, name: str) -> str:
        """Run a program, and return its output.

        Raises:
            AssertionError: it raised an exception, or the process ended.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"program": program, "name": name}) + "\n")
        process.stdin.flush()
        printed = ""
        while (character := process.stdout.read(1)) not in ("", _MARK):
            printed += character
        assert character == _MARK, f"{name}: {printed}\n{self._errors.read_text()}"
        return printed

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main() -> None:
    """Run the programs that come on standard input."""
    sys.path[0] = ""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        order = json.loads(line)
        # An exception ends the process, and the test sees that.
        exec(compile(order["program"], order["name"], "exec"), namespace)
        print(_MARK, end="", flush=True)


if __name__ == "__main__":
    main()
