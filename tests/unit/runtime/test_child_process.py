"""Child processes, as forks of a template and as interpreters of their own: one contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.runtime.child_process import INPUT_BYTES_MAX, SubprocessStarter
from barnabas.runtime.forked_process import STATUS_UNKNOWN, ForkStarter, can_fork
from barnabas.runtime.process_table import process_identity
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.child_process import ChildProcess, ProcessStarter

PROGRAM = (sys.executable, str(Path(__file__).with_name("child_program.py")))
LIMIT_S = 90.0

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system cannot fork from a template")


@pytest.fixture(params=["fork", "subprocess"])
def starter(request: pytest.FixtureRequest) -> Iterator[ProcessStarter]:
    made: ProcessStarter
    made = (
        ForkStarter([*PROGRAM, "fork"]) if request.param == "fork" else SubprocessStarter(PROGRAM)
    )
    yield made
    made.close()


@pytest.fixture
def forking() -> Iterator[ForkStarter]:
    made = ForkStarter([*PROGRAM, "fork"])
    yield made
    made.close()


def start(starter: ProcessStarter, *words: str) -> ChildProcess:
    return starter.start(words, os.environ)


def outcome(child: ChildProcess) -> tuple[str, str, int]:
    """Return output, errors and exit status of a child that ends."""
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout as output, child.stderr as errors:
        return output.read().decode(), errors.read().decode(), child.wait(LIMIT_S)


def first_line(child: ChildProcess) -> bytes:
    assert child.stdout is not None
    return child.stdout.readline()


def test_a_child_sees_only_what_it_was_given(starter: ProcessStarter) -> None:
    given = {"PATH": os.environ["PATH"], "ONLY": "this"}
    output, errors, status = outcome(starter.start(["show", "a b", "é"], given, b"some input"))
    seen: dict[str, Any] = json.loads(output)
    # The interpreter of a subprocess may add the locale that it has chosen.
    seen["environment"].pop("LC_CTYPE", None)
    assert seen == {
        "words": ["a b", "é"],
        "arguments": ["show", "a b", "é"],
        "input": "some input",
        "environment": given,
        "descriptors": [0, 1, 2],
        "group": True,
        "folder": str(Path.cwd()),
        "signals": [True] * 4,
        "wakeup": -1,
    }
    assert (errors, status) == ("a line of errors\n", 0)


def test_input_as_large_as_the_limit_arrives(starter: ProcessStarter) -> None:
    output, _, status = outcome(starter.start(["show"], os.environ, b"x" * INPUT_BYTES_MAX))
    assert (len(json.loads(output)["input"]), status) == (INPUT_BYTES_MAX, 0)


def test_an_environment_of_any_size_arrives(starter: ProcessStarter) -> None:
    given = {f"NAME_{number}": "x" * 10_000 for number in range(60)}
    output, _, _ = outcome(starter.start(["show"], given))
    assert given.items() <= json.loads(output)["environment"].items()


@pytest.mark.parametrize(
    ("words", "errors", "status"),
    [
        (("exit", "0"), "", 0),
        (("exit", "41"), "", 41),
        (("exit", "a reason"), "a reason\n", 1),
        (("raise",), "ValueError: broken on purpose\n", 1),
    ],
)
def test_the_exit_status_is_that_of_a_program(
    starter: ProcessStarter, words: tuple[str, ...], errors: str, status: int
) -> None:
    _, seen, found = outcome(start(starter, *words))
    assert found == status
    assert seen.endswith(errors)


def test_children_draw_different_numbers(starter: ProcessStarter) -> None:
    lines = [outcome(start(starter, "numbers"))[0].split() for _ in range(3)]
    for drawn in zip(*lines, strict=True):
        assert len(set(drawn)) == 3, drawn


def test_signals_reach_the_child_and_show_in_its_status(starter: ProcessStarter) -> None:
    first, second, third = (start(starter, "wait") for _ in range(3))
    for child in (first, second, third):
        first_line(child)
        assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.0)
    first.send_signal(signal.SIGUSR1)
    second.terminate()
    third.kill()
    assert third.wait(LIMIT_S) == -signal.SIGKILL
    assert first.wait(LIMIT_S) == 7
    assert second.wait(LIMIT_S) == -signal.SIGTERM
    # Signals to a process that has ended do nothing, and its status stays.
    third.kill()
    assert (third.poll(), third.wait()) == (-signal.SIGKILL, -signal.SIGKILL)


def test_the_starter_knows_the_parent_of_its_children(starter: ProcessStarter) -> None:
    parent = starter.parent_id
    child = start(starter, "wait")
    assert int(first_line(child)) == parent
    child.kill()
    child.wait(LIMIT_S)


def test_lists_of_processes_show_the_arguments_of_a_fork(forking: ForkStarter) -> None:
    child = start(forking, "wait", "for", "it")
    first_line(child)
    shown = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    assert shown.rstrip(b"\0") == b"barnabas wait for it"
    child.kill()
    child.wait(LIMIT_S)


def test_the_processes_of_a_closed_starter_have_another_parent(forking: ForkStarter) -> None:
    child = start(forking, "wait")
    template = int(first_line(child))
    identity = process_identity(template)
    assert identity is not None
    forking.close()
    assert process_identity(template) != identity
    assert child.poll() is None
    child.send_signal(signal.SIGUSR1)
    assert child.wait(LIMIT_S) == STATUS_UNKNOWN


def test_a_template_that_was_killed_is_replaced(forking: ForkStarter) -> None:
    before = forking.parent_id
    os.kill(before, signal.SIGKILL)
    eventually(lambda: forking.parent_id != before)
    assert outcome(start(forking, "exit", "3"))[2] == 3


def test_a_template_that_cannot_start_is_reported() -> None:
    starter = ForkStarter((sys.executable, "-c", "raise SystemExit('no template')"))
    with pytest.raises(OSError, match="has ended"):
        start(starter, "show")
    starter.close()


def test_the_template_ignores_signals_of_the_terminal(forking: ForkStarter) -> None:
    assert outcome(start(forking, "exit", "0"))[2] == 0
    template = forking.parent_id
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(template, number)
    assert outcome(start(forking, "exit", "5"))[2] == 5
    assert forking.parent_id == template


# It starts a child, prints the ids of the template and of the child, and waits to be killed.
_PARENT = """
import os, sys
from barnabas.runtime.forked_process import ForkStarter
starter = ForkStarter(sys.argv[1:])
child = starter.start(["wait"], os.environ)
child.stdout.readline()
print(starter.parent_id, child.pid, flush=True)
sys.stdin.read()
"""


def test_the_template_ends_when_its_parent_is_killed() -> None:
    command = [sys.executable, "-c", _PARENT, *PROGRAM, "fork"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        template, child = map(int, parent.stdout.readline().split())
        identities = {each: process_identity(each) for each in (template, child)}
        assert None not in identities.values()
        parent.kill()
    eventually(lambda: process_identity(template) != identities[template])
    # The child outlives both, and would wait for its signal for ever.
    assert process_identity(child) == identities[child]
    os.kill(child, signal.SIGUSR1)
    eventually(lambda: process_identity(child) != identities[child])
