"""Runs `barnabas doctor` as a separate process, for the rows of the table of troubles."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from scenario.trouble_table import BY_NAME
from waiting import PATIENCE_S, eventually

# Remedies that would lose data or hide the problem; no finding may contain them.
HARMFUL = re.compile(
    r"replication\.factor=|unclean|barnabas format|\brm |unregister|quorum remove|"
    r"--ignore-formatted|wipe|topics delete"
)


class Finding(NamedTuple):
    """One finding of doctor."""

    verdict: str
    what: str
    remedy: str


def barnabas(*words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command line and wait for its end."""
    command = [*prefix, sys.executable, "-m", "barnabas.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def run(*words: str) -> str:
    """Run a command that must succeed; return its standard output."""
    done = barnabas(*words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def run_doctor(target: object, prefix: tuple[str, ...] = ()) -> list[Finding]:
    """Return the findings of doctor; its exit status must match."""
    done = barnabas("doctor", str(target), "--json", prefix=prefix)
    assert done.returncode in (0, 1, 3), done.stderr
    report = json.loads(done.stdout)
    assert report["well"] is (done.returncode == 0)
    return [Finding(f["verdict"], f["what"], f["remedy"]) for f in report["findings"]]


def await_finding(name: str, target: object, prefix: tuple[str, ...] = ()) -> list[Finding]:
    """Wait until doctor returns the finding of a row, without harmful remedies.

    Returns:
        The finding of the row, and after it all findings.
    """
    trouble = BY_NAME[name]
    seen: list[Finding] = []

    def matching_and_all() -> list[Finding]:
        seen[:] = run_doctor(target, prefix)
        harmful = [each for each in seen if HARMFUL.search(each.remedy)]
        assert not harmful, harmful
        found = [
            each
            for each in seen
            if each.verdict == trouble.verdict
            and trouble.finding in each.what
            and trouble.remedy in each.remedy
        ]
        return [*found, *seen] if found else []

    return eventually(matching_and_all, lambda: f"{name}: {seen}", pause_s=0.5)


def await_recovery(name: str, target: object) -> None:
    """Wait until doctor finds no problem, and not the finding of the row."""
    trouble = BY_NAME[name]
    seen: list[Finding] = []

    def has_recovered() -> bool:
        seen[:] = run_doctor(target)
        return not any(
            each.verdict == "wrong" or (each.verdict != "ok" and trouble.finding in each.what)
            for each in seen
        )

    eventually(has_recovered, lambda: f"{name}: {seen}", pause_s=0.5)


def run_remedy(remedy: str, bootstrap: str, *more: str) -> None:
    """Run the command that a remedy names, on a cluster."""
    found = re.search(r"barnabas ([^;]+)", remedy)
    assert found is not None, remedy
    run(*shlex.split(found[1]), *more, "-b", bootstrap)
