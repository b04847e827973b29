"""The common part of the Python programs: arguments, the result, and the end of a member."""

from __future__ import annotations

import json
import sys
import threading
import time

# Shorter than the time limit of a program.
PATIENCE_S = 40.0


def main(actions):
    """Run the action of the command line, and print its result."""
    name, text = sys.argv[1:3]
    if name == "all":
        calls = json.loads(text)["calls"]
        report({"results": [actions[each](**arguments) for each, arguments in calls]})
        return
    result = actions[name](**json.loads(text))
    if result is not None:
        report(result)


def report(event):
    print(json.dumps(event), flush=True)


def end_of_input():
    """Return an event that is set at the end of standard input, when the member must leave."""
    ended = threading.Event()

    def read():
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


class Partitions:
    """Prints the partitions of a member at each change."""

    def __init__(self):
        self._reported = None

    def note(self, partitions):
        current = sorted(partitions)
        if current != self._reported:
            self._reported = current
            report({"partitions": current})


def eventually(read, expected):
    """Call `read` until it returns the expected value, because brokers apply changes later."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def text(data):
    return None if data is None else data.decode()


def data(words):
    return None if words is None else words.encode()


def record(offset, key, value, timestamp, headers):
    """Return a record as the result has it."""
    return {
        "offset": offset,
        "key": text(key),
        "value": text(value),
        "timestamp": timestamp,
        "headers": [[name, text(content)] for name, content in headers],
    }


def visited(offset, value):
    """Return offset and number of a record, whose value begins with the number and a colon."""
    return [offset, int(value.partition(b":")[0])]
