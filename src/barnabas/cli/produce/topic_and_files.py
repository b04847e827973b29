"""The arguments of `barnabas produce`: TOPIC [FILE...], or -t TOPIC [FILE...] as in kcat."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from barnabas.cli.common.completing import complete_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["topic_and_files"]

F = TypeVar("F", bound="Callable[..., Any]")


def topic_and_files(command: F) -> F:
    """Decorate a command that takes `topic`, a name, and `files`, opened for reading bytes.

    Without -t, the first argument is the topic. With -t, all arguments are files.
    """

    @wraps(command)
    def with_both(*, named_topic: str | None, words: Sequence[str], **given: Any) -> Any:
        topic, files = named_topic, list(words)
        if topic is None:
            if not files:
                raise click.UsageError("Missing argument 'TOPIC'.")
            topic = files.pop(0)
        context = click.get_current_context()
        kind = click.File("rb")
        opened = tuple(kind.convert(name, None, context) for name in files)
        return command(topic=topic, files=opened, **given)

    argument = click.argument(
        "words", nargs=-1, metavar="[TOPIC] [FILE...]", shell_complete=_complete
    )
    option = click.option(
        "-t",
        "--topic",
        "named_topic",
        metavar="TOPIC",
        help="The topic; then all arguments are files.",
        shell_complete=complete_topics,
    )
    return cast("F", argument(option(with_both)))


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem]:
    """Complete a topic as the first argument, and files after it."""
    if ctx.params.get("named_topic") is None and not ctx.params.get("words"):
        return complete_topics(ctx, param, incomplete)
    return [CompletionItem(incomplete, type="file")]
