"""Shared parts of the client commands: options, error messages, JSON and exit statuses.

Exit statuses:
- 0: done
- 1: the cluster refused, no broker answered in time, or records were not delivered
- 2: wrong usage
- 3: `doctor` and `why` found no problem, but could not examine everything
- 130: interrupted

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import base64
import difflib
import logging
import os
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from barnabas.cli.common.printable import echo, json_line
from barnabas.cli.common.profiles import (
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    PROFILE_VARIABLE,
    select,
)
from barnabas.cli.common.terminal import exit_status
from barnabas.cli.common.units import Seconds, config_text
from barnabas.client.errors import (
    ClientConfigError,
    ClientError,
    UnknownPartitionError,
    UnknownTopicError,
)
from barnabas.runtime.process import discard_standard_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.client.errors import NoBrokersError
    from barnabas.client.facade import Client
    from barnabas.protocol.api_keys import ApiKey

F = TypeVar("F", bound="Callable[..., Any]")
EXIT_FAILED = 1
EXIT_INCOMPLETE = 3
# Timeout for a broker that answers, and for each response (seconds).
TIMEOUT_S = 10.0
# After this time without a response, a command prints the brokers that it waits for.
_NOTICE_MS = 1_000
_TIMEOUT_KEY = "barnabas.timeout"
# Options of commands with a producer -> configuration keys.
PRODUCER_FLAGS = {"compression": "compression.type", "acks": "acks"}


property_option = click.option(
    "-X",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A configuration key of Kafka's clients, such as request.timeout.ms=5000.",
)
config_file_option = click.option(
    "-F",
    "--config-file",
    "--command-config",
    "config_file",
    metavar="FILE",
    help=f"A properties file of Kafka's clients, for example with credentials.  "
    f"[env var: {CONFIG_VARIABLE}]",
)


def _check_addresses(
    _context: click.Context, _parameter: click.Parameter, addresses: Sequence[str]
) -> Sequence[str]:
    """Refuse addresses without a port, which no listener can have."""
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isdigit()):
            raise click.BadParameter(f"{address} is not HOST:PORT")
    return addresses


metrics_option = click.option(
    "-m",
    "--metrics",
    multiple=True,
    callback=_check_addresses,
    metavar="HOST:PORT",
    help="A broker's metrics listener; may be given for each broker.",
)

queries_option = click.option(
    "--queries",
    multiple=True,
    callback=_check_addresses,
    metavar="HOST:PORT",
    help="The metrics of Spark's streaming queries in a driver; may be given for each driver.",
)


def _keep_timeout(ctx: click.Context, _parameter: click.Parameter, value: float) -> None:
    ctx.meta[_TIMEOUT_KEY] = value


# The command does not get this option: `connected` reads it from the context.
timeout_option = click.option(
    "--timeout",
    type=Seconds(0.1, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    expose_value=False,
    callback=_keep_timeout,
    help="Fail if no broker answers within this time.",
)


def _timeout_ms() -> int:
    """Return the value of --timeout, or its default in a command without this option."""
    ctx = click.get_current_context(silent=True)
    return round(1000 * (TIMEOUT_S if ctx is None else ctx.meta.get(_TIMEOUT_KEY, TIMEOUT_S)))


class ClientOptions(NamedTuple):
    """Values of the options that `client_options` adds."""

    bootstrap: str
    # KEY=VALUE; later ones override earlier ones.
    properties: Sequence[str] = ()
    as_json: bool = False

    def with_flags(self, keys: Mapping[str, str]) -> ClientOptions:
        """Return options in which the options on the command line override the profile.

        Args:
            keys: Parameter of the option -> configuration key of the client.
        """
        context = click.get_current_context()
        flags = [
            f"{key}={context.params[name]}"
            for name, key in keys.items()
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        ]
        return self._replace(properties=(*self.properties, *flags))


def bootstrap_option(help_text: str = "Brokers to connect to first.") -> Callable[[F], F]:
    """Return --bootstrap; the command passes its value to `select`."""
    return click.option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT[,...]",
        help=f"{help_text}  [env var: {BOOTSTRAP_VARIABLE}; "
        f"default: from the profile, else {DEFAULT_BOOTSTRAP}]",
    )


profile_option = click.option(
    "--profile",
    metavar="NAME",
    help=f"Use the settings of this profile.  [env var: {PROFILE_VARIABLE}; "
    f"default: the current profile]",
)


def json_option(help_text: str = "Print JSON.", *, short: bool = True) -> Callable[[F], F]:
    """Return the option --json; -J is its name in kcat.

    Args:
        help_text: The description.
        short: Whether the option has the name -J, too.
    """
    names = ("-J", "--json") if short else ("--json",)
    return click.option(*names, "as_json", is_flag=True, help=help_text)


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator that adds several options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def option_record(name: str, kind: Any, *options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options, and gives the command their values as one object.

    Args:
        name: The parameter of the command.
        kind: The named tuple, with a field for each value.
        options: The options. The command gets those without a field on their own.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_record(**given: Any) -> Any:
            values = {field: given.pop(field) for field in kind._fields}
            return command(**{name: kind(**values)}, **given)

        return cast("F", option_group(*options)(with_record))

    return decorate


def client_options(command: F) -> F:
    """Add the options of every command that connects to a cluster.

    The command receives them as `options`; `select` determines their values.
    """
    return client_options_with(json_option())(command)


def client_options_with(as_json_option: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return `client_options` with another form of the option --json."""

    def decorate(command: F) -> F:
        @wraps(command)
        def with_selection(
            *,
            bootstrap: str | None,
            properties: tuple[str, ...],
            profile: str | None,
            config_file: str | None,
            as_json: bool,
            **given: Any,
        ) -> Any:
            _refuse_foreign(properties)
            chosen = select(bootstrap, properties, profile, config_file)
            return command(options=ClientOptions(*chosen, as_json), **given)

        add_options = option_group(
            bootstrap_option(),
            property_option,
            config_file_option,
            profile_option,
            timeout_option,
            as_json_option,
        )
        return cast("F", add_options(with_selection))

    return decorate


def _refuse_foreign(properties: Sequence[str]) -> None:
    """Refuse properties that Kafka's console tools have instead of options.

    Raises:
        click.UsageError: There is such a property; the message names the option.
    """
    if not properties:
        return
    from barnabas.cli.common.habits import property_hint

    name = click.get_current_context().info_name or ""
    for each in properties:
        hint = property_hint(name, each.partition("=")[0])
        if hint:
            raise click.UsageError(hint)


def config_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return the KEY=VALUE configs of an option; values with units (7d, 1GiB) as plain numbers."""
    return {key: config_text(key, value) for key, value in key_values(pairs, option).items()}


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return the KEY=VALUE arguments of an option as a dictionary."""
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} {pair}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def client_config(
    options: ClientOptions, defaults: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return the configuration for a command's client; the user's settings override `defaults`."""
    timeout_ms = _timeout_ms()
    return {
        "client.id": "barnabas-cli",
        "default.api.timeout.ms": str(timeout_ms),
        "request.timeout.ms": str(min(timeout_ms, 30_000)),
        "socket.connection.setup.timeout.ms": str(min(timeout_ms, 10_000)),
        **(defaults or {}),
        **key_values(options.properties, "--property"),
        "bootstrap_servers": options.bootstrap,
    }


@contextmanager
def connected(
    options: ClientOptions,
    defaults: Mapping[str, object] | None = None,
    *,
    limit_total: bool = False,
) -> Iterator[Client]:
    """Yield a client for the duration of a command; print its errors and exit.

    Args:
        options: The options of the user.
        defaults: Settings that the user's settings override.
        limit_total: Whether --timeout limits all calls of the command together, instead of each
            call. The calls then raise TimeoutError.
    """
    from barnabas.client.facade import Client

    # A command prints its own messages instead of the client's log.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    config = client_config(options, defaults)
    servers = config.pop("bootstrap_servers")
    try:
        with Client(servers, **config) as client:
            started = time.monotonic()
            client.await_broker(_timeout_ms(), notice_ms=_NOTICE_MS, on_notice=_report_waiting)
            waiting = f"waiting up to {_timeout_ms() / 1000:g} s"
            report_long_call(client, f"the request is not complete yet; {waiting}")
            if limit_total:
                elapsed_ms = 1000 * (time.monotonic() - started)
                client.limit_total(max(1.0, _timeout_ms() - elapsed_ms))
            try:
                yield client
            except UnknownTopicError as error:
                raise _with_similar_names(client, error) from None
        sys.stdout.flush()
    except ClientConfigError as error:
        raise click.UsageError(str(error)) from None
    except ClientError as error:
        fail(str(error))
    except TimeoutError:
        fail(timeout_message())
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_status(interrupt))
    except BrokenPipeError:
        # The reader of standard output has closed it, which is not an error.
        discard_standard_output()
        sys.exit(0)


def _with_similar_names(client: Client, error: UnknownTopicError) -> UnknownTopicError:
    """Return the error with the names of similar topics, if the cluster has some."""
    if isinstance(error, UnknownPartitionError):
        return error
    try:
        similar = difflib.get_close_matches(error.subject, client.topics())
    except (ClientError, TimeoutError):
        return error
    return UnknownTopicError(error.subject, similar) if similar else error


def timeout_message() -> str:
    """Return the error message of a command whose calls together took longer than --timeout."""
    return f"the brokers did not answer all requests within {_timeout_ms() / 1000:g} s (--timeout)"


def _report_waiting(error: NoBrokersError) -> None:
    dialed = "; ".join(f"{address}: {reason}" for address, reason in error.attempts)
    warning(f"no broker has answered yet ({dialed}); waiting up to {_timeout_ms() / 1000:g} s")


def report_long_call(client: Client, reason: str) -> None:
    """Arrange that the first call of a client that takes long prints the reason."""
    client.notify_long_wait(_NOTICE_MS, lambda: warning(reason))


def problem(message: str) -> None:
    """Print an error on standard error."""
    _mark("error: ", "red")
    echo(message, err=True)


def fail(message: str) -> NoReturn:
    """Print an error on standard error, and end the command with status 1."""
    problem(message)
    sys.exit(EXIT_FAILED)


def fail_without_extra(error: ImportError, extra: str) -> NoReturn:
    """End the command with status 1 because a package of an extra of Barnabas is missing."""
    fail(
        f"the package {error.name} is missing: install Barnabas with its extra `{extra}`, "
        f"in a clone by: pip install '.[{extra}]'"
    )


def warning(message: str) -> None:
    """Print a warning on standard error."""
    _mark("warning: ", "yellow")
    echo(message, err=True)


def _mark(word: str, color: str) -> None:
    if "NO_COLOR" in os.environ:
        echo(word, nl=False, err=True)
    else:
        click.secho(word, fg=color, bold=True, nl=False, err=True)


def moment_ms(text: str, option: str) -> int:
    """Parse a time that a user typed: ISO 8601, or milliseconds since 1970.

    A time without a zone is in the local time zone.

    Returns:
        Milliseconds since 1970.

    Raises:
        click.UsageError: The text has neither format.
    """
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write milliseconds or an ISO time such as 2026-01-31T12:00"
        raise click.UsageError(f"{option} {text}: {hint}") from None
    return int(moment.timestamp() * 1000)


def echo_json(value: object) -> None:
    """Print one JSON value on a line of standard output."""
    echo(json_line(value))


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as a JSON member: text if they are UTF-8, else base64 in `<name>_base64`."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def require_api(client: Client, api: ApiKey, name: str, purpose: str) -> None:
    """End the command with status 1 if the brokers do not serve the API.

    Args:
        client: The client of the command; any of its brokers receives the request.
        api: The key of the API.
        name: The name of the API in Kafka's protocol guide.
        purpose: The operation that needs the API, for the error message.
    """
    if api in client.admin.describe_versions().apis:
        return
    fail(
        f"{purpose} requires the API {name}, which these brokers do not serve; Apache "
        "Kafka serves it since version 3.0"
    )
