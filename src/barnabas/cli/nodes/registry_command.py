"""`barnabas registry`: a schema registry for a cluster of Barnabas or Apache Kafka."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import click

from barnabas.cli.common.output import (
    ClientOptions,
    bootstrap_option,
    client_config,
    config_file_option,
    fail,
    option_record,
    profile_option,
    property_option,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.profiles import select
from barnabas.cli.nodes.start_broker import set_up_log
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError

EXAMPLES = """\b
Examples:
  barnabas registry
  barnabas registry -b broker.example:9092 --listen 127.0.0.1:8081
  barnabas registry --config client.properties --listen 0.0.0.0:8081
  barnabas registry --topic _schemas --group schema-registry

\b
Prints "ready URL" on standard output when it answers. Its state is the topic _schemas, in the
format of Confluent's registry. Several processes elect a leader, and the others forward changes to
it: all must reach the address of each (--advertised-listener). Ctrl-C or SIGTERM ends it. To run
one beside a broker: barnabas start --registry 127.0.0.1:8081.
"""
_DEFAULT_LISTEN = "127.0.0.1:8081"


class _RegistryOptions(NamedTuple):
    """The options of a registry, without those of its clients."""

    listen: str
    advertised: str | None
    topic: str
    replication_factor: int
    group: str
    follower: bool
    exit_with: int | None
    log_format: str
    log_level: str


_registry_options = option_record(
    "registry_options",
    _RegistryOptions,
    click.option(
        "--listen",
        metavar="HOST:PORT",
        default=_DEFAULT_LISTEN,
        show_default=True,
        help="Address for clients; port 0 takes any free port.",
    ),
    click.option(
        "--advertised-listener",
        "advertised",
        metavar="HOST:PORT",
        help="Address for other processes of the registry. Default: that of --listen.",
    ),
    click.option(
        "--topic",
        default="_schemas",
        show_default=True,
        help="The topic of the schemas (kafkastore.topic).",
    ),
    click.option(
        "--replication-factor",
        type=click.IntRange(-1),
        default=-1,
        help="Replicas of a new topic. Default: 3, or all brokers if there are fewer.",
    ),
    click.option(
        "--group",
        default="schema-registry",
        show_default=True,
        help="The group of all processes of this registry (schema.registry.group.id).",
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
@bootstrap_option()
@property_option
@config_file_option
@profile_option
@_registry_options
def registry(
    bootstrap: str | None,
    properties: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    registry_options: _RegistryOptions,
) -> None:
    """Serve schemas over Confluent's REST interface until SIGTERM or SIGINT."""
    given = registry_options
    set_up_log(given.log_format, given.log_level)
    chosen = select(bootstrap, properties, profile, config_file)
    client = _checked_config(chosen.bootstrap, chosen.properties)
    host, port = _address(given.listen, "--listen")
    if given.advertised is not None:
        _address(given.advertised, "--advertised-listener")
    try:
        from barnabas.registry.serving import serve
    except ImportError as error:
        fail(
            f"the package {error.name} is missing: install Barnabas with its extra `registry`, "
            "in a clone by: pip install '.[registry]'"
        )
    from barnabas.registry.settings import RegistrySettings

    settings = RegistrySettings(
        bootstrap=chosen.bootstrap,
        client=client,
        host=host,
        port=port,
        advertised=given.advertised or "",
        topic=given.topic,
        replication_factor=given.replication_factor,
        group_id=given.group,
        leader_eligibility=not given.follower,
        exit_with=given.exit_with,
    )
    reason = serve(settings, _announce)
    if reason:
        fail(f"the registry cannot run: {reason}")


def _announce(url: str) -> None:
    echo(f"ready {url}")
    sys.stdout.flush()


def _checked_config(bootstrap: str, properties: tuple[str, ...]) -> dict[str, Any]:
    config = client_config(ClientOptions(bootstrap, properties), {"client.id": "barnabas-registry"})
    servers = config.pop("bootstrap_servers")
    try:
        ClientConfig.parse({"bootstrap.servers": servers, **config})
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    return config


def _address(given: str, option: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise click.UsageError(f"{option} takes HOST:PORT, for example 127.0.0.1:8081")
    return host or "127.0.0.1", int(port)
