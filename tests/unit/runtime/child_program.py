"""The program of the child processes in test_child_process: `fork NUMBER` makes it a template."""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import sys
import uuid
from pathlib import Path

# Numbers that are drawn before the fork, so that the generators have their state.
DRAWN = (random.random(), ssl.RAND_bytes(8), uuid.uuid4())


def main(words: list[str]) -> int | None:
    """Do what the first word says, with the others as arguments."""
    actions = {"show": show, "numbers": numbers, "exit": leave, "raise": fail, "wait": wait}
    return actions[words[0]](words[1:])


def show(words: list[str]) -> None:
    """Print what the process sees of itself."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    with os.scandir("/proc/self/fd") as found:
        # The scan itself has a descriptor.
        descriptors = sorted(int(each.name) for each in found)[:-1]
    seen = {
        "words": words,
        "arguments": sys.argv[1:],
        "input": sys.stdin.read(),
        "environment": dict(os.environ),
        "descriptors": descriptors,
        "group": os.getpgid(0) == os.getpid(),
        "folder": str(Path.cwd()),
        "signals": [
            (signal.getsignal(each) or signal.SIG_DFL) is not signal.SIG_IGN for each in signals
        ],
        "wakeup": signal.set_wakeup_fd(-1),
    }
    print(json.dumps(seen))
    print("a line of errors", file=sys.stderr)


def numbers(_words: list[str]) -> None:
    """Print numbers of all generators."""
    print(random.random(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), os.urandom(8).hex())


def leave(words: list[str]) -> None:
    """Exit with a number or a text."""
    sys.exit(int(words[0]) if words[0].isdecimal() else words[0])


def fail(_words: list[str]) -> None:
    """Raise an error."""
    raise ValueError("broken on purpose")


def wait(_words: list[str]) -> int:
    """Print a line, then wait for SIGUSR1."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print(os.getppid(), flush=True)
    return signal.sigwait([signal.SIGUSR1]) - signal.SIGUSR1 + 7


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        from barnabas.runtime.forked_process import serve_forks

        serve_forks(int(sys.argv[2]), main)
    else:
        sys.exit(main(sys.argv[1:]))
