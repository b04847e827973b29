"""`barnabas format`: format a node's data directories before its first start (kafka-storage)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from barnabas.cli.common.output import echo_json, fail, json_option
from barnabas.cli.common.tables import echo_line
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.rng import SystemRng

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.records.security import UserScramCredentialRecord
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.startup.formatting import FirstVoters, Formatted, InitialController

EXAMPLES = """\b
Examples:
  barnabas format --random-uuid
  barnabas format node-1.properties --cluster-id CLUSTER_ID --standalone
  barnabas format node-2.properties --cluster-id CLUSTER_ID --no-initial-controllers
  barnabas format node-1.properties --cluster-id CLUSTER_ID \\
      --initial-controllers 1@a:9093:JEXY6aqzQY-32P5TStzaFg,2@b:9093:MvDxzVmcRsaTz33bUuRU6A

\b
`barnabas start` formats empty directories itself; this is for a dynamic quorum (KIP-853) that
begins with several voters: format all of them with the same --initial-controllers first. It is
also for users of SCRAM that must exist before the first start: format all controllers with the
same --add-scram or --add-scram-file.
"""


@click.command("format", epilog=EXAMPLES)
@click.argument("properties_file", required=False, metavar="[SERVER.PROPERTIES]")
@click.option("--cluster-id", metavar="UUID", help="Id of the cluster.")
@click.option("--standalone", is_flag=True, help="Make this node the only initial voter.")
@click.option(
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY_ID,...",
    help="The initial voters; the same for all nodes.",
)
@click.option(
    "--no-initial-controllers",
    is_flag=True,
    help="Other nodes are the initial voters; this node may join later.",
)
@click.option(
    "--add-scram",
    multiple=True,
    metavar="MECHANISM=[name=NAME,password=PASSWORD]",
    help="A user of SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated.",
)
@click.option(
    "--add-scram-file",
    type=click.File(),
    metavar="FILE",
    help="A file with a user in each line, written as for --add-scram; - for standard input. Other "
    "users of the machine see the arguments of commands.",
)
@click.option(
    "--ignore-formatted", is_flag=True, help="Pass over directories that are formatted already."
)
@click.option("--random-uuid", is_flag=True, help="Only print a new cluster id.")
@json_option()
def format_command(
    properties_file: str | None,
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    add_scram: tuple[str, ...],
    add_scram_file: TextIO | None,
    ignore_formatted: bool,
    random_uuid: bool,
    as_json: bool,
) -> None:
    """Format the data directories in a server.properties for a cluster.

    With static voters (controller.quorum.voters), only the cluster id is required. A dynamic quorum
    also requires --standalone, --initial-controllers or --no-initial-controllers. Kafka and
    Barnabas can use directories that the other one has formatted. In the file of a node of several
    processes (barnabas.node.brokers), the folder of each process is formatted.
    """
    if random_uuid:
        _echo_random_uuid(as_json=as_json)
        return
    if properties_file is None:
        raise click.UsageError("Give the server.properties of the node.")
    if sum((standalone, no_initial_controllers, initial_controllers is not None)) > 1:
        raise click.UsageError("Use only one of these options: each defines the first voters.")
    from barnabas.server.startup.formatting import FirstUserError, FormatError, parse_first_user
    from barnabas.settings.key import ConfigError
    from barnabas.settings.properties import PropertiesError
    from barnabas.storage.errors import StorageError

    try:
        voters = _first_voters(standalone, initial_controllers, no_initial_controllers)
        users = [
            parse_first_user(each, SystemRng()) for each in (*add_scram, *_lines(add_scram_file))
        ]
        properties = _properties(properties_file, cluster_id)
        with _configurations(properties) as configurations:
            done = _format(configurations, voters, users, skip_formatted=ignore_formatted)
    except (
        FirstUserError,
        FormatError,
        ConfigError,
        PropertiesError,
        StorageError,
        OSError,
    ) as error:
        fail(str(error))
    _echo(done, as_json=as_json)


def _lines(file: TextIO | None) -> list[str]:
    """Return the lines of a file that are not blank."""
    return [] if file is None else [line.strip() for line in file if line.strip()]


def _echo(done: list[Formatted], *, as_json: bool) -> None:
    if as_json:
        echo_json(
            [
                {"path": each.path, "directory_id": each.directory_id, "formatted": each.is_new}
                for each in done
            ]
        )
        return
    for each in done:
        what = "formatted" if each.is_new else "was already formatted"
        echo_line(f"{each.path} {what}, directory.id {each.directory_id}")


def _echo_random_uuid(*, as_json: bool) -> None:
    from barnabas.protocol.primitives import uuid_to_string

    made = uuid_to_string(SystemRng().uuid())
    if as_json:
        echo_json({"uuid": made})
    else:
        echo_line(made)


def _properties(properties_file: str, cluster_id: str | None) -> dict[str, str]:
    from barnabas.cli.common.variables import without_variables
    from barnabas.settings.properties import parse_properties

    properties = parse_properties(RealDisk().read(properties_file).decode("latin-1"))
    if cluster_id is not None:
        properties["cluster.id"] = cluster_id
    return without_variables(properties)


@contextmanager
def _configurations(properties: dict[str, str]) -> Iterator[list[Configuration]]:
    """Give the configuration of the process, or of each process of a node, the controller first.

    The directories of a node are locked in the meantime.
    """
    from barnabas.server.configs.configuration import read_configuration
    from barnabas.server.configs.node_keys import BROKERS_KEY

    if not properties.get(BROKERS_KEY):
        yield [read_configuration(properties)]
        return
    from barnabas.cli.nodes.node_plans import reserved_node

    with reserved_node(properties) as plans:
        yield [each.configuration for each in plans]


def _format(
    configurations: list[Configuration],
    voters: FirstVoters | tuple[InitialController, ...],
    users: list[UserScramCredentialRecord],
    *,
    skip_formatted: bool,
) -> list[Formatted]:
    """Format the directories of each process. Voters and users concern the first one."""
    from barnabas.runtime.clock import SystemClock
    from barnabas.server.startup.formatting import FirstVoters, FormatDependencies, format_node

    dependencies = FormatDependencies(RealDisk(), SystemClock(), SystemRng())
    first, *others = configurations
    done = format_node(first, voters, dependencies, skip_formatted=skip_formatted, users=users)
    for each in others:
        done += format_node(
            each, FirstVoters.AS_CONFIGURED, dependencies, skip_formatted=skip_formatted
        )
    return done


def _first_voters(
    standalone: bool, initial_controllers: str | None, no_initial_controllers: bool
) -> FirstVoters | tuple[InitialController, ...]:
    from barnabas.server.startup.formatting import FirstVoters, parse_initial_controllers

    if initial_controllers is not None:
        return parse_initial_controllers(initial_controllers)
    if standalone:
        return FirstVoters.STANDALONE
    return FirstVoters.NONE if no_initial_controllers else FirstVoters.AS_CONFIGURED
