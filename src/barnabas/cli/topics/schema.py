"""`barnabas topics schema`: infer the columns of JSON values, as Spark's DDL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    client_options,
    connected,
    echo_json,
    problem,
    warning,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.topic_names import topic_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\b
Examples:
  barnabas topics schema orders
  barnabas topics schema orders --sample 100000 --times
"""


@click.command("schema", epilog=EXAMPLES)
@topic_argument("topic")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Read about this many of the newest records.",
)
@click.option("--times", is_flag=True, help="Make dates and times of text in the form of ISO 8601.")
@client_options
def schema_of_topic(
    topic: str,
    sample: int,
    times: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Print the columns of a topic's JSON values, for the option valueSchema of Spark's source."""
    from barnabas.spark.topics.json_inference import InferenceError, infer_topic

    with connected(bootstrap, properties) as client:
        try:
            found = infer_topic(client, topic, sample, with_times=times)
        except InferenceError as error:
            problem(str(error))
            sys.exit(EXIT_FAILED)
    if as_json:
        echo_json(
            {
                "ddl": found.ddl(),
                "columns": [{"name": name, "type": kind} for name, kind in found.columns],
                "objects": found.objects,
                "others": found.others,
                "widened": list(found.widened),
            }
        )
        return
    echo(found.ddl())
    for sentence in found.widened:
        warning(sentence)
    if found.others:
        warning(
            f"{found.others} of {found.objects + found.others} sampled values are not JSON "
            f"objects; the options valueErrors and deadLetterTopic of Spark's source say what "
            f"becomes of them"
        )
