"""Orders in which nodes die, lose their disks and start again, on real processes.

The result with Apache Kafka depends on the order of its fencing: partitions have no leader, or
Kafka elects the broker with the empty disk. So these stories run only on Barnabas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scenario.language import parse
from scenario.stage import Stage
from selection import nightly_rows_unless

if TYPE_CHECKING:
    from pathlib import Path

# Number of controllers beside three brokers (0: the brokers are controllers), the order in which
# nodes are killed, the order in which they start, and the nodes whose disks are lost.
ORDERS = [
    (0, "3 2 1", "2 1 3", "3"),
    (0, "1 2 3", "3 2 1", "1"),
    (0, "2 3 1", "1 3 2", "2"),
    (1, "3 2 1", "2 1 3", "3"),
    (1, "1 2 3", "1 2 3", "3"),
    (1, "1 2 3", "3 2 1", "1 3"),
    (1, "2 1 3", "2 3 1", "2 1"),
]
# What `make check` runs.
SELECTED = {ORDERS[0], ORDERS[5]}

CONTROLLER = "controller 101"


def story(controllers: int, deaths: str, starts: str, wiped: str) -> str:
    lines = [
        "# No acknowledged record is lost.",
        f"3 brokers {controllers} controllers" if controllers else "3 brokers",
        *(f"topic {name} replicas {ids} min-isr {at_least}" for name, ids, at_least in TOPICS),
        *(f"produce {name} 40" for name, _, _ in TOPICS),
        # A controller that removed dead brokers from the in-sync replicas one by one would keep
        # only the last one, whose disk may be lost. A paused controller sees all deaths at once,
        # however slow the machine is.
        *(f"pause {CONTROLLER}" for _ in range(controllers)),
        *(f"kill broker {node}" for node in deaths.split()),
        *(f"resume {CONTROLLER}" for _ in range(controllers)),
        *(f"wipe broker {node}" for node in wiped.split()),
        *(f"launch broker {node}" for node in starts.split()),
        *(f"expect isr of {name} = 1 2 3" for name, _, _ in TOPICS),
        *(f"expect {name} holds 40 records" for name, _, _ in TOPICS),
        *(f"produce {name} 5" for name, _, _ in TOPICS),
        *(f"expect log of 1 = log of {node}" for node in (2, 3)),
    ]
    return "\n".join(lines)


TOPICS = (("one", "1 2 3", 1), ("two", "2 3 1", 2), ("three", "3 1 2", 1))


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("controllers", "deaths", "starts", "wiped"),
    nightly_rows_unless(SELECTED.__contains__, ORDERS),
)
def test_no_acknowledged_record_is_lost(
    controllers: int, deaths: str, starts: str, wiped: str, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    try:
        stage.play(parse("wiped nodes", story(controllers, deaths, starts, wiped)))
    finally:
        stage.close()
