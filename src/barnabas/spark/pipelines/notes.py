"""What a run notes for the next one and for `status`, in `<storage>/_barnabas/notes.json`.

The checkpoints are Spark's and decide where a flow goes on. The notes add what is not in them: the
definition with which a flow ran, and the last progress with its rows of state. Only the process
that holds the run's lock writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.runtime.disk import RealDisk
from barnabas.spark.pipelines.definition import FlowDefinition

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "notes.json"


@dataclass(slots=True)
class Notes:
    """Notes of all flows, by key of the flow."""

    definitions: dict[str, FlowDefinition] = field(default_factory=dict)
    # The last progress event of each flow.
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    # How the last run ended, and when (ms since 1970); empty before the first.
    last_run: dict[str, Any] = field(default_factory=dict)


def read_notes(directory: Path) -> Notes:
    """Return the notes in a directory; empty ones if there are none."""
    try:
        value = json.loads((directory / _FILE).read_text())
    except FileNotFoundError:
        return Notes()
    return Notes(
        {key: FlowDefinition.from_json(each) for key, each in value["definitions"].items()},
        value["progress"],
        value["last_run"],
    )


def write_notes(directory: Path, notes: Notes) -> None:
    """Replace the notes in a directory. A kill leaves the old ones or the new ones."""
    directory.mkdir(parents=True, exist_ok=True)
    value = {
        "definitions": {key: each.to_json() for key, each in notes.definitions.items()},
        "progress": notes.progress,
        "last_run": notes.last_run,
    }
    data = json.dumps(value, indent=1).encode()
    RealDisk().write_atomically(str(directory / _FILE), data, sync=False)
