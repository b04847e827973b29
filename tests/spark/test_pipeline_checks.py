"""`barnabas pipeline run --check` finds with Spark what would fail, or lose or repeat rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from selection import nightly_unless
from spark.pipeline_shell import TIMEOUT_S, Pipeline

pytestmark = pytest.mark.spark

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]
CHECKED = Path(__file__).with_name("checked_pipeline.py")
DEFINITIONS = "transformations/datasets.py"

JOINED = """\
def source(topic):
    read = spark.readStream.format("barnabas").options(**BROKERS).option("subscribe", topic)
    return read.option("startingOffsets", "earliest").load()


@dp.table
def joined():
    left = source("{first}").selectExpr("key AS k", "timestamp AS t")
    left = left.withWatermark("t", "1 minute")
    right = source("{second}").selectExpr("key AS l", "timestamp AS u")
    right = right.withWatermark("u", "1 minute")
    return left.join(right, f.expr("k = l AND t > u - interval 1 hour AND t < u"))


@dp.materialized_view
"""


@dataclass(frozen=True)
class Edit:
    """An edit of the definitions, and what the check says of it."""

    old: str
    new: str
    # Part of the first error or refusal; none if the check is successful.
    problem: str | None
    more: dict[str, Any] = field(default_factory=dict)


# A change of nothing.
SAME = {"old": "@dp.table", "new": "@dp.table"}
VALUE = '"CAST(value AS STRING) AS value"'
EDITS = {
    "nothing": Edit(**SAME, problem=None),
    "a column in a text": Edit(
        VALUE, '"CAST(vaule AS STRING) AS value"', DEFINITIONS + ":{line}: [UNRESOLVED_COLUMN"
    ),
    "a column in a condition": Edit(
        'f.col("value")', 'f.col("valeu")', DEFINITIONS + ":{line}: [UNRESOLVED_COLUMN"
    ),
    "a table": Edit(
        'spark.read.table("records")',
        'spark.read.table("recrods")',
        DEFINITIONS + ":{line}: [TABLE_OR_VIEW_NOT_FOUND]",
    ),
    "a function of Spark": Edit(
        "upper(value)", "upperr(value)", DEFINITIONS + ":{line}: [UNRESOLVED_ROUTINE]"
    ),
    "a function of Python": Edit(
        'f.max("timestamp")', 'f.maxx("timestamp")', DEFINITIONS + ":{line}: AttributeError"
    ),
    "a type": Edit(
        VALUE,
        '"length(CAST(value AS STRING)) AS value"',
        "its column value is int now, and string in records",
    ),
    "sides of a join": Edit(
        "left.join(right", "right.join(left", "its checkpoint has the offsets in another order"
    ),
    "a missing topic": Edit(
        '"subscribe", topic)', '"subscribe", f"{topic}-typo")', "no longer reads"
    ),
    "a missing table": Edit(
        **SAME,
        problem="are gone, but its checkpoint is at batch 0",
        more={"gone": "storage/tables/records"},
    ),
    "partitions of state": Edit(
        'shuffle.partitions: "2"',
        'shuffle.partitions: "3"',
        None,
        {"file": "spark-pipeline.yml"},
    ),
}  # fmt: skip


# What `make check` edits.
CHOSEN = {
    "nothing",
    "a column in a condition",
    "a function of Python",
    "a type",
    "a missing topic",
    "partitions of state",
}


@pytest.fixture(scope="module")
def checked(
    tmp_path_factory: pytest.TempPathFactory,
    bootstrap: str,
    client: Client,
    pytestconfig: pytest.Config,
) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """The text of the definitions, and the events of the check by name of the edit."""
    topics = ["checked-left", "checked-right"]
    assert not any(client.create_topics([NewTopic(name, 1, 1) for name in topics]).values())
    with client.producer() as producer:
        for topic in topics:
            producer.send_batch(topic, [(b"a", b"one", [], None), (b"b", None, [], None)], 0)
    pipeline = Pipeline(tmp_path_factory.mktemp("checked") / "flights")
    made = pipeline.command("init", "flights", "--topic", topics[0], "--bootstrap", bootstrap)
    assert made.returncode == 0, made.stderr
    joined = JOINED.replace("{first}", topics[0]).replace("{second}", topics[1])
    pipeline.replace("@dp.materialized_view\n", joined)
    is_nightly = pytestconfig.option.nightly
    chosen = {name: EDITS[name] for name in EDITS if is_nightly or name in CHOSEN}
    edits = [
        {**SAME, "check": False},
        *({"old": each.old, "new": each.new, **each.more} for each in chosen.values()),
    ]
    done = subprocess.run(
        [sys.executable, str(CHECKED), str(pipeline.directory)],
        input=json.dumps(edits),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0][-1] == {"event": "ended", "result": "completed"}, events[0]
    return pipeline.definitions.read_text(), dict(zip(chosen, events[1:], strict=True))


@pytest.mark.parametrize("name", nightly_unless(CHOSEN.__contains__, EDITS))
def test_a_check_finds_an_edit(
    checked: tuple[str, dict[str, list[dict[str, Any]]]], name: str
) -> None:
    text, edit, events = checked[0], EDITS[name], checked[1][name]
    if edit.problem is None:
        assert events[-1]["result"] == "completed", events
        return
    assert events[-1]["result"] in ("failed", "refused"), events
    line = text[: text.index(edit.old)].count("\n") + 1
    said = [each.get("problem") or each.get("text") or each.get("error") or "" for each in events]
    assert any(edit.problem.replace("{line}", str(line)) in each for each in said), said
