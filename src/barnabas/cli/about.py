"""`barnabas version`: the version of Barnabas, and the Kafka version whose behavior it follows.

`barnabas completion`: print the script with which a shell completes `barnabas` commands.
"""

from __future__ import annotations

import json
import platform

import click

from barnabas.cli.common.output import json_option
from barnabas.cli.common.printable import echo
from barnabas.version import __version__

KAFKA_BEHAVIOR = "4.4"

VERSION_EXAMPLES = """\b
Examples:
  barnabas version
  barnabas version --json
"""


@click.command(epilog=VERSION_EXAMPLES)
@json_option("Print one JSON object.")
def version(as_json: bool) -> None:
    """Show the version, the Kafka version whose behavior it follows, and the Python version."""
    facts = {
        "barnabas": __version__,
        "kafka": KAFKA_BEHAVIOR,
        "python": platform.python_version(),
    }
    if as_json:
        echo(json.dumps(facts))
        return
    echo(
        f"barnabas {__version__} (behaves as Apache Kafka {KAFKA_BEHAVIOR}; "
        f"Python {facts['python']})"
    )


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

    from barnabas.cli.group import group

    found = get_completion_class(shell)
    assert found is not None, shell
    made = found(group, {}, "barnabas", _VARIABLE)
    # `source()` is not used: it runs bash for its version, and warns if there is no bash.
    click.echo(made.source_template % made.source_vars())
