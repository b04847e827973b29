"""`barnabas migrate`: check what a node or a cluster of Apache Kafka takes along to Barnabas."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    ClientOptions,
    client_options,
    connected,
    echo_json,
)
from barnabas.cli.common.tables import Styled, bad, echo_entry, echo_line, good, warn
from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = """\b
Examples:
  barnabas migrate check /etc/kafka/server.properties
  barnabas migrate check node-1.properties node-2.properties --json
  barnabas migrate check /var/lib/kafka/data
  barnabas migrate check --bootstrap kafka.example:9092

\b
Each line begins with one of three words:
  moves   it means the same on Barnabas
  but     it moves, with the difference that the line tells
  stops   the node or the cluster cannot move like this; the next line tells what to do

\b
Exit status: 0 nothing stops the move, 1 something does, 2 wrong usage, 3 nothing stops it as far as
this could be examined. Nothing is changed. docs/migration.md has the way.
"""

_WORDS: dict[str, tuple[str, Callable[[object], Styled]]] = {
    "ok": ("moves", good),
    "note": ("but", warn),
    "wrong": ("stops", bad),
}


@click.group()
def migrate() -> None:
    """Move from Apache Kafka, node by node."""


@migrate.command(epilog=EXAMPLES)
@click.argument("targets", nargs=-1, metavar="[SERVER.PROPERTIES|DIRECTORY]...")
@client_options
def check(options: ClientOptions, targets: tuple[str, ...]) -> None:
    """Tell what carries over from the files of a node, or from a running cluster.

    Without a file or directory, the cluster at --bootstrap is checked.
    """
    found = Diagnosis()
    if targets:
        _check_files(targets, found)
    else:
        # Imported only for clusters.
        from barnabas.cli.migrate.running_cluster import check_cluster

        with connected(options) as client:
            check_cluster(client, found)
    _show(found, as_json=options.as_json)
    if not found.is_healthy:
        sys.exit(EXIT_FAILED)
    if targets and not found.is_complete:
        sys.exit(EXIT_INCOMPLETE)


def _check_files(targets: tuple[str, ...], found: Diagnosis) -> None:
    # Imported only for files: it needs the configuration of a broker.
    from barnabas.cli.migrate.node_files import check_directory, check_properties

    for path in targets:
        if RealDisk().is_directory(path):
            check_directory(path.rstrip("/") or "/", found)
        elif RealDisk().exists(path):
            check_properties(path, found)
        else:
            raise click.UsageError(f"{path} does not exist")


def _show(found: Diagnosis, *, as_json: bool) -> None:
    if as_json:
        findings = [
            {"verdict": _WORDS[each.verdict][0], "what": each.what, "remedy": each.remedy}
            for each in found.findings
        ]
        echo_json({"can_move": found.is_healthy, "findings": findings})
        return
    for each in found.findings:
        word, color = _WORDS[each.verdict]
        echo_entry(color(word), each.what, each.remedy)
    stops = sum(each.verdict == "wrong" for each in found.findings)
    if stops:
        echo_line(bad(f"{stops} {'thing stops' if stops == 1 else 'things stop'} the move"))
    else:
        echo_line(good("nothing stops the move"))
