"""Topics, groups and partitions as users type them, and their completion by the shell.

Topics and groups are arguments, or options -t and -g as in kcat and the tools of Apache Kafka.
Partitions are written TOPIC, or TOPIC:0,2 for some of them. Completion must never hang or print
errors: a broker that does not answer in time gives no names.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from barnabas.cli.common.profiles import select
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.facade import Client

_TIMEOUT_MS = 500


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching topic names; internal topics only if an underscore was typed."""
    internal = incomplete.startswith("_")
    return _requested(ctx, incomplete, lambda client: client.topics(internal=internal))


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching group names."""
    return _requested(
        ctx, incomplete, lambda client: [group.group_id for group in client.admin.list_groups()]
    )


def complete_config_keys(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching config keys of the given resource type, without asking a broker.

    Only the keys of topics and brokers are known here.
    """
    kind = ctx.params.get("kind")
    if kind == "topic":
        from barnabas.storage.config import TOPIC_CONFIGS as KEYS
    elif kind == "broker":
        from barnabas.server.configs.configuration import BROKER_KEYS as KEYS
    else:
        return []
    return _beginning((key.name for key in KEYS), incomplete)


def _requested(
    ctx: click.Context, incomplete: str, request: Callable[[Client], Iterable[str]]
) -> list[str]:
    from barnabas.client.facade import Client

    # This process only completes names, so its log would disturb the shell.
    logging.disable()
    limits = dict.fromkeys(
        ("default_api_timeout_ms", "request_timeout_ms", "socket_connection_setup_timeout_ms"),
        _TIMEOUT_MS,
    )
    try:
        given = ctx.params.get
        chosen = select(given("bootstrap"), (), given("profile"), given("config_file"))
        settings = dict(each.split("=", 1) for each in chosen.properties)
        with Client(chosen.bootstrap, **{**settings, **limits}) as client:
            return _beginning(request(client), incomplete)
    except (ClientError, click.UsageError):
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


F = TypeVar("F", bound="Callable[..., Any]")


class _Kind(NamedTuple):
    """A kind of names that commands take, as arguments and with an option."""

    short: str
    long: str
    metavar: str
    complete: Callable[[click.Context, click.Parameter, str], list[str]]

    def option(self, name: str, *, multiple: bool) -> Callable[[F], F]:
        """Return the option for the same names as the arguments."""
        return click.option(
            self.short,
            self.long,
            name,
            multiple=multiple,
            metavar=self.metavar,
            help=f"The same as the argument {self.metavar}."
            + (" May be repeated." if multiple else ""),
            shell_complete=self.complete,
        )


_TOPIC = _Kind("-t", "--topic", "TOPIC", complete_topics)
_GROUP = _Kind("-g", "--group", "GROUP", complete_groups)


def topic_arguments(
    name: str, metavar: str = "TOPIC...", *, required: bool = True
) -> Callable[[F], F]:
    """Decorate a command that takes several topics, as arguments and with -t.

    Args:
        name: The parameter of the command that receives all topics as one tuple.
        metavar: The name of the arguments in the help text.
        required: Whether a command line without a topic is a usage error.
    """
    return _several(_TOPIC, name, metavar, required=required)


def group_arguments(name: str) -> Callable[[F], F]:
    """Decorate a command that takes several groups, as arguments and with -g."""
    return _several(_GROUP, name, "GROUP...", required=True)


def topic_argument(name: str) -> Callable[[F], F]:
    """Decorate a command that takes one topic, as an argument or with -t."""
    return _one(_TOPIC, name)


def group_argument(name: str) -> Callable[[F], F]:
    """Decorate a command that takes one group, as an argument or with -g."""
    return _one(_GROUP, name)


def _several(kind: _Kind, name: str, metavar: str, *, required: bool) -> Callable[[F], F]:
    named = f"named_{name}"

    def decorate(command: F) -> F:
        @wraps(command)
        def with_names(**given: Any) -> Any:
            given[name] = (*given.pop(named), *given[name])
            if required and not given[name]:
                raise click.UsageError(f"Missing argument '{metavar}'.")
            return command(**given)

        argument = click.argument(
            name, nargs=-1, metavar=f"[{metavar}]", shell_complete=kind.complete
        )
        return cast("F", argument(kind.option(named, multiple=True)(with_names)))

    return decorate


def _one(kind: _Kind, name: str) -> Callable[[F], F]:
    named = f"named_{name}"

    def decorate(command: F) -> F:
        @wraps(command)
        def with_name(**given: Any) -> Any:
            by_option = given.pop(named)
            if by_option is not None and given[name] is not None:
                raise click.UsageError(
                    f"give only one {kind.metavar.lower()}, as {kind.metavar} or with {kind.long}"
                )
            given[name] = given[name] if by_option is None else by_option
            if given[name] is None:
                raise click.UsageError(f"Missing argument '{kind.metavar}'.")
            return command(**given)

        argument = click.argument(
            name, required=False, metavar=f"[{kind.metavar}]", shell_complete=kind.complete
        )
        return cast("F", argument(kind.option(named, multiple=False)(with_name)))

    return decorate


def parse_specs(specs: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Parse specs into topics and partition numbers; no numbers means all partitions.

    Raises:
        click.UsageError: The text after the colon is not a list of numbers.
    """
    found = []
    for spec in specs:
        topic, colon, numbers = spec.partition(":")
        words = numbers.split(",") if colon else []
        if not topic or not all(word.isdigit() for word in words):
            raise click.UsageError(f"{spec}: write TOPIC, or TOPIC:0,2 for some partitions")
        found.append((topic, tuple(map(int, words))))
    return found


def partitions_of(client: Client, specs: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that the specs name, without duplicates.

    Raises:
        click.UsageError: The topic does not have a partition with that number.
        UnknownTopicError: The topic does not exist.
    """
    parsed = parse_specs(specs)
    found = client.partitions_for([topic for topic, _ in parsed], may_be_new=False)
    wanted: dict[TopicPartition, None] = {}
    for topic, numbers in parsed:
        for number in numbers or found[topic]:
            if number not in found[topic]:
                raise click.UsageError(f"{topic} has partitions 0 to {len(found[topic]) - 1}")
            wanted[TopicPartition(topic, number)] = None
    return list(wanted)
