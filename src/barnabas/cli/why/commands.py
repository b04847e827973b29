"""`barnabas why`: explain why something waits, and give a remedy."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.advice import connection_options
from barnabas.cli.common.completing import complete_groups, complete_topics
from barnabas.cli.common.output import (
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    client_options,
    connected,
    echo_json,
    metrics_option,
    problem,
    timeout_message,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import Styled, bad, dim, echo_entry, echo_line, good, strong, warn
from barnabas.cli.common.units import NumberRange
from barnabas.cli.why.examination import NOT_ASKED, WHY_DEFAULTS, Question, examine
from barnabas.cli.why.reasons.reason import is_healthy
from barnabas.cli.why.target import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.why.reasons.reason import Reason

EXAMPLES = """\b
Examples:
  barnabas why                       all problems of the cluster
  barnabas why orders:0              why does its high watermark or ISR not advance?
  barnabas why orders:0@1234         why can a consumer not read that offset?
  barnabas why billing               why do the group's members wait?
  barnabas why orders --json

\b
The name may be that of a topic or a group. If an offset lags, the command reads it twice, --seconds
apart. A group member without progress is observed for 6.5 seconds, because healthy members commit
every 5 seconds by default. The command uses only Kafka's protocol, so that it works with Apache
Kafka too. Metrics listeners named by --metrics add facts that no API returns, such as waiting
producers.

\b
Exit status: 0 no problem (notes are not problems), 1 a problem was found, 2 wrong usage, 3 no
problem was found but not everything could be examined.

\b
What a principal may do, and by which entry: barnabas acls why.
"""
_SUBJECTS = 6
_MARKS: dict[str, Callable[[object], Styled]] = {"ok": good, "note": warn, "wrong": bad}


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    names = complete_topics(ctx, parameter, incomplete)
    return names + [n for n in complete_groups(ctx, parameter, incomplete) if n not in names]


@click.command(epilog=EXAMPLES)
@click.argument(
    "target", required=False, metavar="[TOPIC[:PARTITION[@OFFSET]]|GROUP]", shell_complete=_complete
)
@click.option("-g", "--group", "is_group", is_flag=True, help="The name is a group.")
@click.option("-t", "--topic", "is_topic", is_flag=True, help="The name is a topic.")
@click.option(
    "--seconds",
    type=NumberRange(0.1, 600),
    default=2.0,
    show_default=True,
    help="Time between the two measurements.",
)
@metrics_option
@client_options
def why(
    target: str | None,
    is_group: bool,
    is_topic: bool,
    seconds: float,
    metrics: Sequence[str],
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Explain why a partition, an offset or a group does not advance, and what to do."""
    from barnabas.cli.top.metrics import MetricsError
    from barnabas.cli.why.facts.metric_facts import gather_metrics

    if is_group and is_topic:
        raise click.UsageError("give only one of --group and --topic")
    if target is not None and not is_group:
        # Refuse a malformed target before connecting.
        parse_target(target)
    try:
        measured = gather_metrics(metrics)
    except MetricsError as error:
        problem(str(error))
        sys.exit(EXIT_FAILED)
    flags = click.get_current_context().params
    given = {name: flags[name] for name in ("bootstrap", "config_file", "profile")}
    question = Question(target, is_group=is_group, is_topic=is_topic)
    with (
        connection_options(**given),
        connected(bootstrap, properties, WHY_DEFAULTS, limit_total=True) as client,
    ):
        answers = examine(client, question, seconds, measured, timeout_message())
    well = all(is_healthy(reasons) for _, reasons in answers)
    complete = all(reason.kind != NOT_ASKED for _, reasons in answers for reason in reasons)
    if as_json:
        echo_json(
            {
                "well": well and complete,
                "complete": complete,
                "answers": [
                    {"subject": subject, "reasons": [asdict(reason) for reason in reasons]}
                    for subject, reasons in answers
                ],
            }
        )
    else:
        _echo(answers)
    if not well:
        sys.exit(EXIT_FAILED)
    if not complete:
        sys.exit(EXIT_INCOMPLETE)


def _echo(answers: Sequence[tuple[str, Sequence[Reason]]]) -> None:
    # Reasons that are the same for many partitions are printed once.
    merged: list[tuple[list[str], Sequence[Reason]]] = []
    for subject, reasons in answers:
        same = next((each for each in merged if list(each[1]) == list(reasons)), None)
        if same is None:
            merged.append(([subject], reasons))
        else:
            same[0].append(subject)
    for index, (subjects, reasons) in enumerate(merged):
        if index:
            echo()
        more = f" and {len(subjects) - _SUBJECTS} more" if len(subjects) > _SUBJECTS else ""
        echo_line(strong(", ".join(subjects[:_SUBJECTS]) + more))
        for reason in reasons:
            echo_entry(_MARKS[reason.verdict](reason.verdict), reason.what, reason.remedy)
    if not answers:
        echo_line(good("no problems"), dim(": all partitions and groups are healthy"))
