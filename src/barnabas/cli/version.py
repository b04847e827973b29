"""`barnabas version`: the version of Barnabas, and the Kafka version whose behavior it follows."""

from __future__ import annotations

import json
import platform

import click

from barnabas.cli.common.output import json_option
from barnabas.cli.common.printable import echo
from barnabas.version import __version__

KAFKA_BEHAVIOR = "4.4"

EXAMPLES = """\b
Examples:
  barnabas version
  barnabas version --json
"""


@click.command(epilog=EXAMPLES)
@json_option("Print one JSON object.")
def version(as_json: bool) -> None:
    """Show the version, the Kafka version whose behavior it follows, and the Python version."""
    facts = {"barnabas": __version__, "kafka": KAFKA_BEHAVIOR, "python": platform.python_version()}
    if as_json:
        echo(json.dumps(facts))
        return
    echo(
        f"barnabas {__version__} (behaves as Apache Kafka {KAFKA_BEHAVIOR}; "
        f"Python {facts['python']})"
    )
