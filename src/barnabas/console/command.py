"""`barnabas console`: a web console for a cluster of Barnabas or Apache Kafka."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    bootstrap_option,
    client_config,
    fail_without_extra,
    metrics_option,
    problem,
    property_option,
    queries_option,
    warning,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.profiles import (
    CONFIG_VARIABLE,
    PROFILE_VARIABLE,
    Selection,
    select,
)
from barnabas.cli.common.registries import open_registry, registry_option
from barnabas.cli.common.units import NumberRange
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.console.access.options import access_options, login_settings, read_roles
from barnabas.console.cluster_options import cluster_option
from barnabas.console.connect.options import connect_options
from barnabas.console.history.history_file import HistoryFile, HistoryFileError, history_file
from barnabas.console.history.prometheus import Prometheus
from barnabas.console.messages.options import RecordRules, record_options, record_rules
from barnabas.runtime.process import discard_standard_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.console.access.users import LoginSettings
    from barnabas.console.connect.options import ConnectOptions

EXAMPLES = """\b
Examples:
  barnabas console
  barnabas console -b broker.example:9092 --port 8081
  barnabas console --config client.properties
  barnabas console --allow-changes
  barnabas console --pipeline flights
  barnabas console --registry http://registry.example:8081
  barnabas console --connect local=http://127.0.0.1:8083
  barnabas console --host 0.0.0.0 --password-file secret --allowed-host kafka.example
  barnabas console --cluster east=east-profile --cluster west=broker.example:9092
  barnabas console --allow-changes --broker-users SCRAM-SHA-512 --role alice=admin
  barnabas console --user-header X-Forwarded-User --trusted-proxy 127.0.0.1

\b
The console only reads. With --allow-changes it shows forms for changes after a log-in. The password
is printed at the start and is valid once; each log-in prints the next one. --password-file sets a
password that stays. If other machines can reach the console (--host), reading needs the log-in too.
The console has no TLS of its own: use a tunnel or a proxy. Ctrl-C ends it.
"""
_WITH_CLUSTER = (
    "leave out -b, --profile, -F, --registry and --prometheus with several clusters: each has its "
    "own settings in its profile or properties file"
)
# Several clusters have their own settings.
_NONE = Selection("", ())


@click.command(epilog=EXAMPLES)
@bootstrap_option()
@property_option
@click.option(
    "-F",
    "--config",
    "--config-file",
    "--command-config",
    "config_file",
    metavar="FILE",
    help=f"A properties file of Kafka's clients, for example with credentials.  "
    f"[env var: {CONFIG_VARIABLE}]",
)
@click.option(
    "--profile",
    metavar="NAME",
    help=f"Use the settings of this profile.  [env var: {PROFILE_VARIABLE}; "
    f"default: the current profile]",
)
@cluster_option
@metrics_option
@queries_option
@registry_option("Schema registry, by which messages are shown as JSON.")
@connect_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="Port to listen on; 0 for any free port.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name in the address of browsers, such as that of a proxy.",
)
@access_options
@record_options
@click.option(
    "--interval",
    type=NumberRange(0.5, 3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples of rates and lags.",
)
@click.option(
    "--history",
    metavar="PATH",
    help="A file, or a directory of files, that keeps rates and lags of a day over restarts.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="A Prometheus server with the metrics of the brokers, for older rates.",
)
@click.option(
    "--prometheus-labels",
    default="",
    metavar="LABELS",
    help="Labels in Prometheus that choose this cluster, such as 'cluster=\"east\"'.",
)
@click.option(
    "--pipeline",
    "pipelines",
    multiple=True,
    metavar="DIR",
    help="Show the pipeline of this project too; may be repeated.",
)
def console(
    bootstrap: str | None,
    properties: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    metrics: Sequence[str],
    queries: Sequence[str],
    registry: str | None,
    connect: ConnectOptions,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    interval: float,
    history: str | None,
    prometheus: str | None,
    prometheus_labels: str,
    pipelines: Sequence[str],
    clusters: Sequence[str],
    rules: RecordRules,
    **access: Any,
) -> None:
    """Show a cluster in a web browser: topics, messages, groups, configs, problems."""
    if clusters and (bootstrap or profile or config_file):
        raise click.UsageError(_WITH_CLUSTER)
    try:
        from barnabas.console.serving import serve
    except ImportError as error:
        fail_without_extra(error, "console")
    from barnabas.console.cluster_options import named_clusters, services, several_clusters
    from barnabas.console.settings import ConsoleSettings, is_loopback
    from barnabas.console.terminal import show_warnings

    chosen = select(bootstrap, properties, profile, config_file) if not clusters else _NONE
    clusters = clusters or (() if bootstrap else named_clusters(chosen.properties))
    if clusters and (registry or prometheus):
        raise click.UsageError(_WITH_CLUSTER)
    several = several_clusters(clusters, properties, metrics, connect, _checked_config)
    several = tuple(replace(c, history=_open_history(history, c.bootstrap)) for c in several)
    chosen = _NONE if several else chosen
    own = services(chosen.properties)
    config = {} if several else _checked_config(chosen.bootstrap, chosen.properties)
    if not is_loopback(host):
        warning("other machines can reach the console, and it has no TLS of its own")
    settings = ConsoleSettings(
        bootstrap=chosen.bootstrap,
        client=config,
        metrics=() if several else (*own.metrics, *metrics),
        host=host,
        port=port,
        allowed_hosts=tuple(allowed_hosts),
        allow_changes=access["allow_changes"],
        login=_login(access),
        clusters=several,
        audit_log=access["audit_log"],
        costly_per_minute=access["costly_limit"],
        interval=interval,
        pipelines=tuple(pipelines),
        queries=tuple(queries),
        registry=open_registry(registry, chosen.properties),
        **record_rules(rules),
        connect=() if several else connect.settings((), own.connect)[""],
        history=None if several else _open_history(history, chosen.bootstrap),
        prometheus=Prometheus(prometheus, prometheus_labels) if prometheus else own.prometheus,
    )
    show_warnings()
    try:
        if serve(settings, _announce_address, _announce_password, _announce):
            return
    except OSError as error:
        problem(f"{settings.audit_log} cannot be written: {error.strerror or error}")
    sys.exit(EXIT_FAILED)


def _login(access: Mapping[str, Any]) -> LoginSettings:
    return login_settings(
        password_file=access["password_file"],
        broker_users=access["broker_users"],
        act_as_user=access["act_as_user"],
        headers=(access["user_header"], access["groups_header"]),
        trusted_proxies=access["trusted_proxies"],
        roles=read_roles(access["roles"], access["roles_file"]),
    )


def _checked_config(bootstrap: str, properties: Sequence[str]) -> dict[str, str]:
    config = client_config(ClientOptions(bootstrap, properties), {"client.id": "barnabas-console"})
    servers = config.pop("bootstrap_servers")
    try:
        ClientConfig.parse({"bootstrap.servers": servers, **config})
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    return {key: str(value) for key, value in config.items()}


def _open_history(path: str | None, bootstrap: str) -> HistoryFile | None:
    try:
        return None if path is None else history_file(path, bootstrap)
    except HistoryFileError as error:
        raise click.UsageError(str(error)) from None


def _announce_address(url: str) -> None:
    # A console whose terminal is gone still serves its pages.
    try:
        echo(f"ready {url}")
        sys.stdout.flush()
    except OSError:
        discard_standard_output()


def _announce_password(password: str) -> None:
    _announce(f"password for one log-in: {password}")


def _announce(text: str) -> None:
    # A console whose terminal is gone still accepts the log-in that uses up the last password.
    with contextlib.suppress(OSError):
        echo(text)
        sys.stdout.flush()
