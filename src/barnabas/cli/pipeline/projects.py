"""What the commands of `barnabas pipeline` share: the project, and the bounds of its topics."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.moments import utc_text
from barnabas.cli.common.output import DEFAULT_BOOTSTRAP, EXIT_FAILED, connected, problem
from barnabas.client.errors import UnknownTopicError
from barnabas.spark.pipelines.checkpoints import TopicBounds, noted_brokers
from barnabas.spark.pipelines.project import ProjectError, load_project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.pipelines.checkpoints import Checkpoint, Notes
    from barnabas.spark.pipelines.project import Project

project_option = click.option(
    "-p",
    "--project",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The project's directory, or its specification.  [default: the current directory]",
)
offline_option = click.option(
    "--offline", is_flag=True, help="Do not ask brokers; the lag is unknown."
)


@contextmanager
def reported() -> Iterator[None]:
    """Print errors of a project, and exit."""
    try:
        yield
    except ProjectError as error:
        problem(str(error))
        sys.exit(EXIT_FAILED)


def project_of(directory: str) -> Project:
    """Read the project of a directory.

    Raises:
        ProjectError: there is no project, or it is wrong.
    """
    return load_project(Path(directory))


def moment(milliseconds: int) -> str | None:
    """Return a time as text; None for 0, which stands for no watermark."""
    if milliseconds <= 0:
        return None
    return utc_text(milliseconds, "seconds")


def topic_bounds(
    checkpoints: Sequence[Checkpoint], notes: Notes, bootstrap: str, properties: Sequence[str]
) -> TopicBounds | None:
    """Ask the brokers for first and end offsets of all partitions in the checkpoints.

    Without brokers of the user, those of the definitions are asked.
    """
    if not any(each.topic_offsets for each in checkpoints):
        return None
    if bootstrap == DEFAULT_BOOTSTRAP:
        bootstrap = noted_brokers(notes) or bootstrap
    with connected(bootstrap, properties) as client:
        return listed_bounds(client, checkpoints)


def listed_bounds(client: Client, checkpoints: Sequence[Checkpoint]) -> TopicBounds:
    """Return first and end offsets of all partitions in the checkpoints that exist."""
    partitions = sorted({tp for each in checkpoints for tp in each.topic_offsets})
    there = _existing(client, partitions)
    starts, ends = (
        client.list_offsets(dict.fromkeys(there, spec)) for spec in ("earliest", "latest")
    )
    return TopicBounds(
        {tp: each.offset for tp, each in starts.items()},
        {tp: each.offset for tp, each in ends.items()},
    )


def _existing(client: Client, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that exist: a topic may have been deleted since."""
    found = []
    for topic in sorted({tp.topic for tp in partitions}):
        try:
            described = client.describe_topics([topic])[topic]
        except (UnknownTopicError, KeyError):
            continue
        found += [
            tp for tp in partitions if tp.topic == topic and tp.partition in described.partitions
        ]
    return found
