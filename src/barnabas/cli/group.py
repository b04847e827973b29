"""The click group of all commands. Each command is imported when it is called.

The help text lists all commands without an import. `completion` is here because shells run it at
each start.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, NamedTuple

import click

from barnabas.runtime.process import discard_standard_output
from barnabas.version import __version__


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
    "brokers": LazyCommand("cli.admin.brokers", "brokers", "List and unregister brokers."),
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
    "log": LazyCommand("cli.log.commands", "log", "Show and check the files of a log."),
    "doctor": LazyCommand("cli.doctor.commands", "doctor", "Find problems and their remedies."),
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
    "completion": LazyCommand("cli.group", "completion", "Print the completion script of a shell."),
    "version": LazyCommand("cli.version", "version", "Show the version."),
}


# The modes of kcat, which are options there -> the command.
_KCAT_MODES = {
    "-C": "barnabas consume",
    "-P": "barnabas produce",
    "-L": "barnabas topics list, or barnabas brokers list",
    "-Q": "barnabas consume --timestamp",
    "-G": "barnabas consume --group",
}


class LazyGroup(click.Group):
    """A click group that knows its commands from a table and imports a command on demand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; the modes of kcat fail with the command to use."""
        if args and args[0] in _KCAT_MODES:
            ctx.fail(f"{args[0]} is an option of kcat: use {_KCAT_MODES[args[0]]}.")
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

        A misspelled command fails with a suggestion. Click itself only looks for similar names
        among imported commands.
        """
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader that has closed the output is no error, as with `head`."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_standard_output()
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])


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
