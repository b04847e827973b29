"""Topics as arguments, and as -t options like in kcat and the tools of Apache Kafka."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from barnabas.cli.common.completing import complete_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["topic_argument", "topic_arguments"]

F = TypeVar("F", bound="Callable[..., Any]")


def topic_arguments(
    name: str, metavar: str = "TOPIC...", *, required: bool = True
) -> Callable[[F], F]:
    """Decorate a command that takes several topics, as arguments and with -t.

    Args:
        name: The parameter of the command that receives all topics as one tuple.
        metavar: The name of the arguments in the help text.
        required: Whether a command line without a topic is a usage error.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_topics(*, named_topics: Sequence[str], **given: Any) -> Any:
            given[name] = (*named_topics, *given[name])
            if required and not given[name]:
                raise click.UsageError(f"Missing argument '{metavar}'.")
            return command(**given)

        shown = f"[{metavar}]"
        argument = click.argument(name, nargs=-1, metavar=shown, shell_complete=complete_topics)
        option = _topic_option("named_topics", "A topic, the same as TOPIC.", multiple=True)
        return cast("F", argument(option(with_topics)))

    return decorate


def topic_argument(name: str) -> Callable[[F], F]:
    """Decorate a command that takes one topic, as an argument or with -t.

    Args:
        name: The parameter of the command.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_topic(*, named_topic: str | None, **given: Any) -> Any:
            if named_topic is not None and given[name] is not None:
                raise click.UsageError("give only one topic, as TOPIC or with --topic")
            given[name] = given[name] if named_topic is None else named_topic
            if given[name] is None:
                raise click.UsageError("Missing argument 'TOPIC'.")
            return command(**given)

        argument = click.argument(
            name, required=False, metavar="[TOPIC]", shell_complete=complete_topics
        )
        option = _topic_option("named_topic", "The topic, the same as TOPIC.", multiple=False)
        return cast("F", argument(option(with_topic)))

    return decorate


def _topic_option(name: str, text: str, *, multiple: bool) -> Callable[[F], F]:
    return click.option(
        "-t",
        "--topic",
        name,
        multiple=multiple,
        metavar="TOPIC",
        help=text,
        shell_complete=complete_topics,
    )
