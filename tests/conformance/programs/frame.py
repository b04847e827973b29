"""What the programs in Python have in common: arguments, the result, and when to leave."""

from __future__ import annotations

import json
import sys
import threading
import time

# Less than a program may take.
PATIENCE_S = 40.0


def main(actions):
    """Run the action that the command line names, and print what it returns."""
    name, text = sys.argv[1:3]
    if name == "all":
        calls = json.loads(text)["calls"]
        say({"results": [actions[each](**arguments) for each, arguments in calls]})
        return
    result = actions[name](**json.loads(text))
    if result is not None:
        say(result)


def say(what):
    print(json.dumps(what), flush=True)


def end_of_input():
    """An event that is set when standard input ends: the member has to leave."""
    ended = threading.Event()

    def read():
        sys.stdin.read()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


class Partitions:
    """Says which partitions a member has, whenever that changes."""

    def __init__(self):
        self._said = None

    def note(self, partitions):
        now = sorted(partitions)
        if now != self._said:
            self._said = now
            say({"partitions": now})


def eventually(look, wanted):
    """What `look` gives once that is what is wanted: brokers apply changes by and by."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def text(data):
    return None if data is None else data.decode()


def data(words):
    return None if words is None else words.encode()
