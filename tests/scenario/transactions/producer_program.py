"""A transactional producer as a process, so that it can be killed and paused.

Arguments: KIND BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS. Each line of the standard input is a call, a
JSON array of its name and its arguments. Each line of the output is the result of a call: null, or
an array of the verdict and the text of `Refused`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from scenario.transactions.producers import PRODUCERS
from scenario.transactions.refused import Refused


def main() -> None:
    """Run calls until the end of the input."""
    kind, bootstrap, transactional_id, timeout_ms = sys.argv[1:]
    producer = PRODUCERS[kind](bootstrap, transactional_id, int(timeout_ms))
    calls: dict[str, Callable[..., None]] = {
        "initialize": producer.initialize,
        "begin": producer.begin,
        "send": lambda topic, values: producer.send(topic, [each.encode() for each in values]),
        "send_offset": producer.send_offset,
        "commit": producer.commit,
        "abort": producer.abort,
    }
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            calls[name](*arguments)
        except Refused as refused:
            result: list[str] | None = [refused.verdict, refused.text]
        else:
            result = None
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
