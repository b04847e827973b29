"""`barnabas completion`: print the script with which a shell completes `barnabas` commands."""

from __future__ import annotations

import click

EXAMPLES = """\b
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


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from click.shell_completion import get_completion_class

    from barnabas.cli.group import group

    found = get_completion_class(shell)
    assert found is not None, shell
    made = found(group, {}, "barnabas", _VARIABLE)
    # `source()` is not used: it runs bash for its version, and warns if there is no bash.
    click.echo(made.source_template % made.source_vars())
