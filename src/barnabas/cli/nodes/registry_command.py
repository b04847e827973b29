"""`barnabas registry`: a schema registry for a cluster of Barnabas or Apache Kafka."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple

import click

from barnabas.cli.common.output import (
    ClientOptions,
    bootstrap_option,
    client_config,
    config_file_option,
    fail,
    fail_without_extra,
    option_record,
    profile_option,
    property_option,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.profiles import select
from barnabas.cli.common.variables import without_variables
from barnabas.cli.nodes.registry_properties import read_registry_properties
from barnabas.cli.nodes.start_broker import set_up_log
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import discard_standard_output
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

EXAMPLES = """\b
Examples:
  barnabas registry
  barnabas registry -b broker.example:9092 --listen 127.0.0.1:8081
  barnabas registry --config-file client.properties --listen 0.0.0.0:8081
  barnabas registry schema-registry.properties

\b
Prints "ready URL" on standard output when it answers. Its state is the topic _schemas, in the
format of Confluent's registry, whose properties files it reads. Several processes elect a leader,
and the others forward changes to it: all must reach the address of each (--advertised-listener).
Ctrl-C or SIGTERM ends it. To run one beside a broker: barnabas start --registry 127.0.0.1:8081.
"""
# The properties come from standard input.
_STANDARD_INPUT = "-"
_SERVERS = "kafkastore.bootstrap.servers"


class _RegistryOptions(NamedTuple):
    """The options of a registry, without those of its clients; None for the file's value."""

    listen: str | None
    advertised: str | None
    topic: str | None
    replication_factor: int | None
    group: str | None
    follower: bool
    exit_with: int | None
    log_format: str
    log_level: str

    def as_properties(self) -> dict[str, str]:
        """Return the given options as properties."""
        given = {
            "listeners": self.listen,
            "host.name": self.advertised,
            "kafkastore.topic": self.topic,
            "kafkastore.topic.replication.factor": self.replication_factor,
            "schema.registry.group.id": self.group,
            "leader.eligibility": "false" if self.follower else None,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


_registry_options = option_record(
    "registry_options",
    _RegistryOptions,
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Address for clients; port 0 takes any free port.  [default: 127.0.0.1:8081]",
    ),
    click.option(
        "--advertised-listener",
        "advertised",
        metavar="HOST:PORT",
        help="Address for other processes of the registry. Default: that of --listen.",
    ),
    click.option(
        "--topic",
        help="The topic of the schemas (kafkastore.topic).  [default: _schemas]",
    ),
    click.option(
        "--replication-factor",
        type=click.IntRange(1),
        help="Replicas of a new topic. Default: 3, or all brokers if there are fewer.",
    ),
    click.option(
        "--group",
        help="The group of all processes of this registry (schema.registry.group.id).  "
        "[default: schema-registry]",
    ),
    click.option(
        "--follower",
        is_flag=True,
        help="Never lead; forward all changes (leader.eligibility=false).",
    ),
    click.option(
        "--exit-with",
        type=click.IntRange(1),
        metavar="PID",
        help="End when this process ends, even by SIGKILL.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of the log.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="warning",
        show_default=True,
        help="Lowest level of logged messages.",
    ),
)


@click.command(epilog=EXAMPLES)
@click.argument("properties_file", required=False, metavar="[PROPERTIES]")
@bootstrap_option()
@property_option
@config_file_option
@profile_option
@_registry_options
def registry(
    properties_file: str | None,
    bootstrap: str | None,
    properties: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    registry_options: _RegistryOptions,
) -> None:
    """Serve schemas over Confluent's REST interface until SIGTERM or SIGINT.

    PROPERTIES is a file with the keys of Confluent's registry; the options override it.
    """
    given = registry_options
    set_up_log(given.log_format, given.log_level)
    try:
        in_file = {} if properties_file is None else _read_properties(properties_file)
        in_file.update(given.as_properties())
        is_in_file = bootstrap is None and _SERVERS in in_file
        chosen = select(bootstrap, properties, "" if is_in_file else profile, config_file)
        client = client_config(
            ClientOptions(chosen.bootstrap, chosen.properties), {"client.id": "barnabas-registry"}
        )
        servers = client.pop("bootstrap_servers")
        settings = read_registry_properties(in_file, client, None if is_in_file else servers)
    except (ConfigError, PropertiesError) as error:
        raise click.UsageError(str(error)) from None
    try:
        from barnabas.registry.serving import serve
    except ImportError as error:
        fail_without_extra(error, "registry")
    reason = serve(replace(settings, exit_with=given.exit_with), _announce)
    if reason:
        fail(f"the registry cannot run: {reason}")


def _read_properties(path: str) -> dict[str, str]:
    """Return the properties in a file, or those of standard input."""
    try:
        data = sys.stdin.buffer.read() if path == _STANDARD_INPUT else RealDisk().read(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    return without_variables(parse_properties(data.decode("latin-1")))


def _announce(url: str) -> None:
    # A registry whose terminal is gone still serves its clients.
    try:
        echo(f"ready {url}")
        sys.stdout.flush()
    except OSError:
        discard_standard_output()
