"""Runs the tutorials of the quorum: `*.txt` in this folder, commands with their expected output.

A tutorial has sentences and commands. A command is one line, followed by `----` and the expected
output, which ends at an empty line. `UPDATE=1` writes the actual output into the files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from unit.raft.tutorial_cluster import TutorialCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TUTORIALS = sorted(Path(__file__).parent.glob("*.txt"))
SEPARATOR = "----"


class Step(NamedTuple):
    # The comment lines above the command.
    text: str
    command: str
    expected: str


def steps_of(content: str) -> Iterator[Step]:
    """Split a file into steps. Blocks are separated by empty lines."""
    text: list[str] = []
    for block in content.strip().split("\n\n"):
        lines = block.split("\n")
        if SEPARATOR not in lines:
            text.append(block)
            continue
        at = lines.index(SEPARATOR)
        comment = "\n".join(lines[: at - 1])
        above = "\n\n".join([*text, comment] if comment else text)
        yield Step(above, lines[at - 1], "\n".join(lines[at + 1 :]))
        text = []
    assert not text, f"a command is missing below {text[0]}"


def cluster_of(arguments: list[str]) -> TutorialCluster:
    options = dict(each.split("=") for each in arguments)
    voters = [int(each) for each in options["voters"].split(",")]
    observers = [int(each) for each in options.get("observers", "").split(",") if each]
    return TutorialCluster(voters, observers, dynamic=options.get("dynamic") == "true")


def run(cluster: TutorialCluster, command: str) -> str:
    """Run one command. Return its output."""
    name, *arguments = command.split()
    is_shown = "output=none" not in arguments
    arguments = [each for each in arguments if each != "output=none"]
    numbers = [int(each) for each in arguments if each.isdigit()]
    commands: dict[str, Callable[[], None]] = {
        "start": lambda: [cluster.start(each) for each in numbers] and None,
        "crash": lambda: cluster.crash(*numbers),
        "campaign": lambda: cluster.campaign(*numbers),
        "advance": lambda: cluster.advance(*numbers),
        "pass": lambda: cluster.let_pass(*numbers),
        "propose": lambda: cluster.propose(numbers[0], *arguments[1:]),
        "resign": lambda: cluster.resign(*numbers),
        "add-voter": lambda: cluster.add_voter(*numbers),
        "remove-voter": lambda: cluster.remove_voter(*numbers),
        "snapshot": lambda: cluster.snapshot(*numbers),
        "isolate": lambda: cluster.isolate(*numbers),
        "heal": cluster.heal,
        "status": cluster.status,
        "deliver": lambda: cluster.deliver(*numbers),
        "stabilize": cluster.stabilize,
    }
    commands[name]()
    shown = "\n".join(cluster.lines) if is_shown else "ok"
    cluster.lines.clear()
    return shown or "nothing"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_quorum_does_what_the_tutorial_shows(path: Path) -> None:
    content = path.read_text()
    cluster: TutorialCluster | None = None
    written: list[str] = []
    for step in steps_of(content):
        name, *arguments = step.command.split()
        if name == "cluster":
            cluster, shown = cluster_of(arguments), "ok"
        else:
            assert cluster is not None, "the first command is `cluster`"
            shown = run(cluster, step.command)
        above = f"{step.text}\n" if step.text else ""
        written.append(f"{above}{step.command}\n{SEPARATOR}\n{shown}\n")
        if not os.environ.get("UPDATE"):
            assert shown == step.expected, f"{path.name}: {step.command}"
    if os.environ.get("UPDATE"):
        path.write_text("\n".join(written))


def test_each_tutorial_begins_with_sentences() -> None:
    assert len(TUTORIALS) >= 10
    for path in TUTORIALS:
        assert path.read_text().startswith("# "), path.name
