"""Writes docs/cli.md from the help texts of all commands.

Run `python -m tools.document_commands` after a change of any command; a test checks the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.group import group

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parents[1] / "docs" / "cli.md"
COMMAND = "python -m tools.document_commands"
WIDTH = 100

HEAD = f"""# The command line

Written by `{COMMAND}` from the commands' own help: do not edit.

- `-b HOST:PORT`, or BARNABAS_BOOTSTRAP, names a broker; any Apache Kafka will do. The default is 127.0.0.1:9092.
- `--json` prints JSON. Without it results are tables on a terminal, and lines separated by tabs elsewhere. The first line names the columns; `--no-header` omits it.
- Options of the client, such as `-b`, may also stand before the command. `barnabas help COMMAND` is the same as `barnabas COMMAND --help`.
- Times and sizes may have units: `90s`, `15m`, `7d`, `64MiB`, `2MB`. Plain numbers have the unit of the option or key.
- Colors are for terminals only, and NO_COLOR turns them off.
- Results go to standard output, everything else to standard error.
- A command that reaches no broker says so on standard error after a second and ends after ten; `--timeout` changes the ten.
- Exit status: 0 done; 1 refused, not delivered, no broker answered, or something is wrong; 2 wrong usage; 130 interrupted.
- `barnabas completion bash` (zsh, fish) prints what makes the shell complete commands, options, topics and groups.
"""  # noqa: E501 - a line of Markdown


def commands(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and help text of a command and of its subcommands."""
    context = click.Context(
        command,
        info_name=path[-1],
        parent=parent,
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from commands(below, (*path, name), context)


def document() -> str:
    """Return the page."""
    parts = [HEAD]
    for path, text in commands(group, ("barnabas",), None):
        level = "##" if len(path) < 3 else "###"
        text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
        parts.append(f"\n{level} {' '.join(path)}\n\n```text\n{text}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
        sys.stdout.write(f"{FILE}\n")
