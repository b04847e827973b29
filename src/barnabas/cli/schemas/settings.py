"""`barnabas schemas compatibility` and `mode`: settings of a registry and of its subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import echo_json
from barnabas.cli.common.tables import dim, echo_table, header_option
from barnabas.cli.schemas.options import RegistryCommand, registry_options
from barnabas.registry.config import LEVELS, MODES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ALL = "(all others)"


_COMPATIBILITY_EXAMPLES = """\b
Examples:
  barnabas schemas compatibility
  barnabas schemas compatibility flights-value
  barnabas schemas compatibility flights-value --set FULL_TRANSITIVE
  barnabas schemas compatibility flights-value --unset

\b
BACKWARD: readers with the new schema can read what the last schema wrote. FORWARD: readers with the
last schema can read what the new schema writes. FULL: both. With _TRANSITIVE, the same holds for
all earlier schemas.
"""
_MODE_EXAMPLES = """\b
Examples:
  barnabas schemas mode
  barnabas schemas mode flights-value --set READONLY
  barnabas schemas mode flights-value --unset

\b
READONLY refuses registrations and deletions. IMPORT accepts versions and ids that the client gives.
"""


@click.command(epilog=_COMPATIBILITY_EXAMPLES)
@click.argument("subjects", nargs=-1, metavar="[SUBJECT...]")
@click.option(
    "--set", "value", type=click.Choice(LEVELS, case_sensitive=False), help="Set this level."
)
@click.option("--unset", is_flag=True, help="Remove the level: that of the registry applies.")
@header_option
@registry_options
def compatibility(
    subjects: Sequence[str], value: str | None, unset: bool, target: RegistryCommand
) -> None:
    """Show or set the compatibility level of subjects, or of all that have none of their own."""
    with target.calls() as registry:
        if value or unset:
            for subject in _chosen(subjects, value, unset=unset):
                registry.set_compatibility(value, subject)
        _show("compatibility", subjects, registry.compatibility, target)


@click.command(epilog=_MODE_EXAMPLES)
@click.argument("subjects", nargs=-1, metavar="[SUBJECT...]")
@click.option(
    "--set", "value", type=click.Choice(MODES, case_sensitive=False), help="Set this mode."
)
@click.option("--unset", is_flag=True, help="Remove the mode: that of the registry applies.")
@click.option("--force", is_flag=True, help="Set IMPORT although there are schemas.")
@header_option
@registry_options
def mode(
    subjects: Sequence[str], value: str | None, unset: bool, force: bool, target: RegistryCommand
) -> None:
    """Show or set the mode of subjects, or of all that have none of their own."""
    with target.calls() as registry:
        if value or unset:
            for subject in _chosen(subjects, value, unset=unset):
                registry.set_mode(value, subject, force=force)
        _show("mode", subjects, registry.mode, target)


def _chosen(subjects: Sequence[str], value: str | None, *, unset: bool) -> Sequence[str]:
    """Return the subjects to change; "" for the registry's own setting."""
    if value and unset:
        raise click.UsageError("give either --set or --unset")
    return subjects or [""]


def _show(
    name: str, subjects: Sequence[str], read: Callable[[str], str | None], target: RegistryCommand
) -> None:
    """Print the setting of the registry, or the settings of subjects."""
    found: dict[str | None, str | None] = {subject: read(subject) for subject in subjects}
    found = found or {None: None}
    default = read("") if None in found.values() else None
    values = [
        (subject, own or default, "subject" if own else "registry")
        for subject, own in found.items()
    ]
    if target.as_json:
        echo_json(
            [{"subject": each, name: value, "from": source} for each, value, source in values]
        )
        return
    rows = [
        (dim(_ALL) if subject is None else subject, value, dim(source))
        for subject, value, source in values
    ]
    echo_table(("subject", name, "from"), rows)
