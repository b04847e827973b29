"""The click group of all commands. Each command is imported when it is called.

The help text lists all commands without an import. `completion` is here because shells run it at
each start.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.groups import DefaultGroup
from barnabas.runtime.process import EXIT_INTERRUPTED, discard_standard_output
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator


class LazyCommand(NamedTuple):
    """The module of a command below `barnabas`, its function, and its line in the group's help."""

    module: str
    attribute: str
    short_help: str


COMMANDS: dict[str, LazyCommand] = {
    "start": LazyCommand("cli.nodes.start_command", "start", "Run a broker until it is stopped."),
    "format": LazyCommand(
        "cli.nodes.format_command", "format_command", "Format a node's data directories."
    ),
    "cluster": LazyCommand(
        "cli.nodes.cluster", "cluster", "Run a local cluster and inject faults."
    ),
    "topics": LazyCommand("cli.admin.topics", "topics", "List, describe and change topics."),
    "produce": LazyCommand("cli.records.produce", "produce", "Write records to a topic."),
    "consume": LazyCommand("cli.records.consume", "consume", "Read records from topics."),
    "groups": LazyCommand("cli.admin.groups", "groups", "List, describe, reset and delete groups."),
    "schemas": LazyCommand(
        "cli.schemas.commands", "schemas", "List, register, check and delete schemas."
    ),
    "partitions": LazyCommand(
        "cli.partitions.commands", "partitions", "Show and move partitions, elect leaders."
    ),
    "links": LazyCommand(
        "cli.links.commands", "links", "Mirror topics of another cluster with their offsets."
    ),
    "rebalance": LazyCommand(
        "cli.partitions.rebalance", "rebalance", "Balance brokers by size and traffic."
    ),
    "metadata": LazyCommand(
        "cli.admin.metadata", "metadata", "Show brokers, topics and leaders as kcat -L."
    ),
    "brokers": LazyCommand("cli.admin.brokers", "brokers", "List, check and unregister brokers."),
    "log-dirs": LazyCommand(
        "cli.admin.brokers", "log_dirs", "Show the contents of the brokers' directories."
    ),
    "features": LazyCommand(
        "cli.admin.brokers", "features", "List, upgrade and downgrade feature levels."
    ),
    "transactions": LazyCommand(
        "cli.admin.transactions", "transactions", "Describe transactions, abort hanging ones."
    ),
    "quorum": LazyCommand("cli.admin.quorum", "quorum", "Describe the quorum, change its voters."),
    "configs": LazyCommand("cli.admin.configs", "configs", "List, describe and change configs."),
    "acls": LazyCommand("cli.admin.acls", "acls", "List, add and remove access control entries."),
    "remote": LazyCommand(
        "cli.remote.commands", "remote", "List and verify segments in remote storage."
    ),
    "log": LazyCommand("cli.log.commands", "log", "Show and check the files of a log."),
    "doctor": LazyCommand("cli.doctor.commands", "doctor", "Find problems and their remedies."),
    "migrate": LazyCommand(
        "cli.migrate.commands", "migrate", "Check what moves over from Apache Kafka."
    ),
    "why": LazyCommand("cli.why.commands", "why", "Explain why something waits."),
    "top": LazyCommand("cli.load.top", "top", "Show rates, lag and load live."),
    "console": LazyCommand("console.command", "console", "Show a cluster in a web browser."),
    "registry": LazyCommand(
        "cli.nodes.registry_command", "registry", "Serve schemas over Confluent's REST interface."
    ),
    "bench": LazyCommand(
        "cli.load.bench", "bench", "Generate load, measure throughput and latency."
    ),
    "pipeline": LazyCommand(
        "cli.spark.pipeline", "pipeline", "Create, run and reset pipelines of Spark."
    ),
    "spark": LazyCommand("cli.spark.checks", "spark", "Check jobs of Spark."),
    "tables": LazyCommand(
        "cli.spark.table_maintenance", "tables", "Maintain tables of Delta and Iceberg."
    ),
    "quotas": LazyCommand("cli.admin.quotas", "quotas", "List, set and unset client quotas."),
    "security": LazyCommand(
        "cli.admin.security", "security", "Set up a broker with TLS, users and rights."
    ),
    "users": LazyCommand("cli.admin.users", "users", "List, add and remove users of SCRAM."),
    "tokens": LazyCommand(
        "cli.admin.tokens", "tokens", "Create, list, renew and expire delegation tokens."
    ),
    "profile": LazyCommand("cli.admin.profile", "profile", "Manage named sets of client settings."),
    "help": LazyCommand("cli.group", "help_command", "Show the help of a command."),
    "completion": LazyCommand("cli.group", "completion", "Print the completion script of a shell."),
    "version": LazyCommand("cli.version", "version", "Show the version."),
}


class LazyGroup(click.Group):
    """A click group that knows its commands from a table and imports a command on demand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; those of the client are for the command."""
        if args and args[0].startswith("-"):
            from barnabas.cli.common.habits import command_hint, options_last

            args = options_last(args)
            if args[0] == "-L":
                # kcat's mode for metadata.
                args = ["metadata", *args[1:]]
            elif hint := command_hint(args[0], ()):
                ctx.fail(f"{args[0]} is an option of kcat. {hint}")
        with _closed_output_allowed(ctx):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with that name; None if there is no such command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"barnabas.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), entry
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command that the first word names.

        An unknown command fails with a suggestion. Click itself only looks for similar names among
        imported commands.
        """
        if ctx.resilient_parsing:
            # The shell completes words, and must not print errors.
            return super().resolve_command(ctx, args)
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from barnabas.cli.common.habits import command_hint

            ctx.fail(f"No such command {name!r}. {command_hint(name, COMMANDS)}".rstrip())
        _, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, click.Group) and not isinstance(command, DefaultGroup):
            rest = _subcommand_first(ctx, name, command, rest)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an unknown option fails with what to use instead, if that is known.

        Ctrl-C ends the command in silence. Click itself would print "Aborted!" with status 1.
        """
        try:
            with _closed_output_allowed(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except click.NoSuchOption as error:
            from barnabas.cli.common.habits import option_hint

            hint = option_hint(ctx.invoked_subcommand or "", error.option_name)
            if not hint:
                raise
            text = f"No such option {error.option_name!r}. {hint}"
            raise click.UsageError(text, error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])


@contextmanager
def _closed_output_allowed(ctx: click.Context) -> Iterator[None]:
    """End the command with status 0 if the reader has closed the output, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        discard_standard_output()
        ctx.exit(0)


def _subcommand_first(
    ctx: click.Context, name: str, command: click.Group, arguments: list[str]
) -> list[str]:
    """Return the words behind a command, with its subcommand as the first one.

    An unknown subcommand fails with a suggestion.
    """
    if not arguments or arguments[0] in command.commands:
        return arguments
    from barnabas.cli.common.habits import action_first, subcommand_hint

    words = action_first(arguments, command.commands)
    if words[0] in command.commands or words[0] in ctx.help_option_names:
        return words
    word = words[0].removeprefix("--")
    hint = subcommand_hint(name, word, command.commands)
    raise click.UsageError(f"No such command {f'{name} {word}'!r}. {hint}", ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To begin: barnabas start. The --help of each command has examples.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def group() -> None:
    """Barnabas: an event log that speaks the Apache Kafka protocol."""


COMPLETION_EXAMPLES = """\b
Examples:
  barnabas completion bash > ~/.local/share/bash-completion/completions/barnabas
  barnabas completion zsh > ~/.zfunc/_barnabas
  barnabas completion fish > ~/.config/fish/completions/barnabas.fish

\b
For the current shell only:
  eval "$(barnabas completion bash)"
The names of topics and groups come from the broker at BARNABAS_BOOTSTRAP (default 127.0.0.1:9092),
whose response may take half a second.
"""

_VARIABLE = "_BARNABAS_COMPLETE"


@click.command(epilog=COMPLETION_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, shell
    made = found(group, {}, "barnabas", _VARIABLE)
    # `source()` is not used: it runs bash for its version, and warns if there is no bash.
    click.echo(made.source_template % made.source_vars())


@click.command("help", epilog="\b\nExamples:\n  barnabas help\n  barnabas help topics create\n")
@click.argument("words", nargs=-1, metavar="[COMMAND [SUBCOMMAND]]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as --help does."""
    assert ctx.parent is not None
    group.main(args=[*words, "--help"], prog_name=ctx.parent.info_name)
