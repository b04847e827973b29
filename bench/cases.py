"""Command line and rounds of benchmarks that run cases on Barnabas and Apache Kafka."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench import brokers
from bench.figures import Figures, show
from bench.report import installed, new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.brokers import Broker


class Case(Protocol):
    """A case of a benchmark, with several rows of its table."""

    @property
    def name(self) -> str:
        """The first part of the names of its rows."""
        ...

    def run(self, broker: Broker, count: int) -> Mapping[str, float]:
        """Run the case `count` times; return the figures by row."""
        ...


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all comparisons have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--brokers", default="barnabas,kafka", help="names, the compared broker first"
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of rounds."""
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds that count")


def compare(
    description: str | None,
    cases: Sequence[Case],
    count: tuple[int, str],
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run all cases on all brokers in turns, and print the table of the best figures.

    Args:
        description: description of the command.
        cases: the cases, in the order of the table.
        count: the default of `--count`, and its help text.
        settings: configuration keys of the brokers.
    """
    parser = new_parser(description)
    parser.add_argument("--count", type=int, default=count[0], help=count[1])
    add_rounds(parser)
    options = parser.parse_args()
    run_cases(cases, options, lambda name: brokers.running(name, settings))


def run_cases(
    cases: Sequence[Case],
    options: argparse.Namespace,
    running: Callable[[str], AbstractContextManager[Broker]],
    warm_ups: int = 1,
) -> None:
    """Run all cases on all brokers in turns, and print the table of the best figures.

    Args:
        cases: the cases, in the order of the table.
        options: values of the options of `new_parser` and `add_rounds`, and the `count` of a case.
        running: runs a broker, or a cluster, by name.
        warm_ups: the number of first rounds, which do not count.
    """
    console = new_console()
    names = installed(options.brokers, console)
    figures = Figures()
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(name)) for name in names]
        for number in range(1 - warm_ups, options.rounds + 1):
            counted = figures if number > 0 else Figures()
            for case in cases:
                for broker in started:
                    console.print(f"  round {number}: {broker.name}, {case.name}")
                    counted.note(broker.name, case.run(broker, options.count))
    show(figures, names, console)
    write_figures(options.json, figures.rows)
