"""`barnabas console`: a web console for a cluster of Barnabas or Apache Kafka."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING

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
from barnabas.cli.common.profiles import CONFIG_VARIABLE, PROFILE_VARIABLE, select
from barnabas.cli.common.registries import open_registry, registry_option
from barnabas.cli.common.units import NumberRange
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.console.history_file import HistoryFile, HistoryFileError, history_file
from barnabas.console.prometheus import Prometheus
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import discard_standard_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.formats import FormatRule
    from barnabas.console.messages.masking import MaskRule

EXAMPLES = """\b
Examples:
  barnabas console
  barnabas console -b broker.example:9092 --port 8081
  barnabas console --config client.properties
  barnabas console --allow-changes
  barnabas console --pipeline flights
  barnabas console --registry http://registry.example:8081
  barnabas console --host 0.0.0.0 --password-file secret --allowed-host kafka.example

\b
The console only reads. With --allow-changes it shows forms for changes after a log-in. The password
is printed at the start and is valid once; each log-in prints the next one. --password-file sets a
password that stays. If other machines can reach the console (--host), reading needs the log-in too.
The console has no TLS of its own: use a tunnel or a proxy. Ctrl-C ends it.
"""
_TIMEOUT_S = 10.0
_PASSWORD_BYTES_MAX = 1024


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
@metrics_option
@queries_option
@registry_option("Schema registry, by which messages are shown as JSON.")
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
@click.option("--allow-changes", is_flag=True, help="Show forms for changes after a log-in.")
@click.option(
    "--password-file",
    metavar="FILE",
    help="A file with the password; without it, one-time passwords are printed.",
)
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
@click.option(
    "--mask",
    "mask_file",
    metavar="FILE",
    help="Hide parts of records by the rules in this file (TOML).",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="TOPIC[:key]=FORMAT",
    help="Decode the values or keys of these topics as json, text, xml, msgpack, cbor or hex.",
)
@click.option(
    "--protobuf",
    "protobuf_types",
    multiple=True,
    metavar="TOPIC[:key]=FILE:MESSAGE",
    help="Decode them as a message of a .proto file or a set of descriptors.",
)
def console(
    bootstrap: str | None,
    properties: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    metrics: Sequence[str],
    queries: Sequence[str],
    registry: str | None,
    host: str,
    port: int,
    allowed_hosts: Sequence[str],
    allow_changes: bool,
    password_file: str | None,
    interval: float,
    history: str | None,
    prometheus: str | None,
    prometheus_labels: str,
    pipelines: Sequence[str],
    mask_file: str | None,
    formats: Sequence[str],
    protobuf_types: Sequence[str],
) -> None:
    """Show a cluster in a web browser: topics, messages, groups, configs, problems."""
    chosen = select(bootstrap, properties, profile, config_file)
    config = _checked_config(chosen.bootstrap, chosen.properties)
    password = None if password_file is None else _read_password(password_file)
    try:
        from barnabas.console.serving import serve
    except ImportError as error:
        fail_without_extra(error, "console")
    from barnabas.console.settings import ConsoleSettings, is_loopback

    if not is_loopback(host):
        warning("other machines can reach the console, and it has no TLS of its own")
    settings = ConsoleSettings(
        bootstrap=chosen.bootstrap,
        client=config,
        metrics=tuple(metrics),
        host=host,
        port=port,
        allowed_hosts=tuple(allowed_hosts),
        allow_changes=allow_changes,
        password=password,
        interval=interval,
        timeout=_TIMEOUT_S,
        pipelines=tuple(pipelines),
        queries=tuple(queries),
        registry=open_registry(registry, chosen.properties),
        masks=() if mask_file is None else _read_masks(mask_file),
        formats=_format_rules(formats, protobuf_types),
        history=_open_history(history, chosen.bootstrap),
        prometheus=Prometheus(prometheus, prometheus_labels) if prometheus else None,
    )
    _show_warnings()
    if not serve(settings, _announce_address, _announce_password):
        sys.exit(EXIT_FAILED)


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


def _read_password(path: str) -> str:
    try:
        data = RealDisk().read(path)
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
    lines = data[:_PASSWORD_BYTES_MAX].decode("utf-8", "replace").splitlines()
    if not lines or not lines[0].strip():
        raise click.UsageError(f"{path} is empty: its first line is the password")
    return lines[0].strip()


def _read_masks(path: str) -> tuple[MaskRule, ...]:
    from barnabas.console.messages.given_rules import RuleError, parse_masks

    try:
        return parse_masks(RealDisk().read(path))
    except OSError as error:
        text = f"--mask {path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
    except RuleError as error:
        raise click.UsageError(f"--mask {path}: {error}") from None


def _format_rules(formats: Sequence[str], protobuf_types: Sequence[str]) -> tuple[FormatRule, ...]:
    from barnabas.console.messages.given_rules import RuleError, parse_format, parse_protobuf

    option = "--format"
    try:
        rules = [parse_format(each) for each in formats]
        option = "--protobuf"
        rules += [parse_protobuf(each, _load_protobuf) for each in protobuf_types]
    except RuleError as error:
        raise click.UsageError(f"{option} {error}") from None
    return tuple(rules)


def _load_protobuf(path: str, message: str) -> Callable[[bytes], Decoded]:
    try:
        from barnabas.console.messages.protobuf_files import ProtobufFormat
    except ImportError as error:
        fail_without_extra(error, "registry")
    from barnabas.serializers.errors import SchemaError

    try:
        return ProtobufFormat(path, message).decode
    except OSError as error:
        text = f"--protobuf {path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
    except SchemaError as error:
        raise click.UsageError(f"--protobuf {path}: {error}") from None


def _announce_address(url: str) -> None:
    # A console whose terminal is gone still serves its pages.
    try:
        echo(f"ready {url}")
        sys.stdout.flush()
    except OSError:
        discard_standard_output()


def _announce_password(password: str) -> None:
    # A console whose terminal is gone still accepts the log-in that uses up the last password.
    with contextlib.suppress(OSError):
        echo(f"password for one log-in: {password}")
        sys.stdout.flush()


class _Warnings(logging.Handler):
    """Prints warnings and errors of the server as the commands print theirs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, with its traceback if there is one."""
        problem(self.format(record))


def _show_warnings() -> None:
    handler = _Warnings(logging.WARNING)
    logging.getLogger("uvicorn").addHandler(handler)
    logging.getLogger("asyncio").addHandler(handler)
    logging.getLogger("barnabas.console").addHandler(handler)
    # Pages show the errors of the client.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
