"""Run chosen tests many times on a busy machine: `make flaky TESTS='tests/unit/raft -k vote'`.

Each run is a process of its own, as on a new machine. Beside it run processes that only compute. At
the end the program prints how many runs failed, and the first error of each kind.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from repeating.alone import kind_of, run_alone

ROOT = Path(__file__).parents[2]
BUSY_MAX = 16

# The process ends with its parent, also if the parent is killed.
COMPUTE = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[list[int]]:
    """Run processes that only compute, and yield their process ids."""
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", COMPUTE]))
            stack.callback(process.kill)
            processes.append(process)
        yield [process.pid for process in processes]


def repeat(tests: Sequence[str], times: int, busy: int, directory: Path = ROOT) -> int:
    """Run tests many times and print the result.

    Args:
        tests: words for the command line of pytest.
        times: the number of runs.
        busy: the number of processes that compute meanwhile.
        directory: the root directory of the project.

    Returns:
        The number of runs that failed.
    """
    failed = 0
    runs_by_kind: Counter[tuple[str, str]] = Counter()
    first_errors: dict[tuple[str, str], str] = {}
    with busy_processes(busy):
        for number in range(1, times + 1):
            errors = run_alone(tests, directory).errors
            failed += bool(errors)
            for test, error in errors.items():
                kind = (test, kind_of(error))
                runs_by_kind[kind] += 1
                if kind not in first_errors:
                    first_errors[kind] = error
                    print(f"run {number}: {test}: {error}", flush=True)
    print(f"{failed} of {times} runs failed")
    for (test, kind), count in runs_by_kind.most_common():
        print(f"{count} of {times}: {test}: {first_errors[test, kind]}")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", help="ids, paths and options for pytest, in one argument")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--busy", type=int, choices=range(BUSY_MAX + 1), default=2, metavar="COUNT")
    arguments = parser.parse_args()
    tests = shlex.split(arguments.tests)
    if not tests:
        parser.error("no tests: make flaky TESTS='tests/unit/raft/test_core.py'")
    if arguments.times < 1:
        parser.error("--times must be at least 1")
    sys.exit(1 if repeat(tests, arguments.times, arguments.busy) else 0)


if __name__ == "__main__":
    main()
