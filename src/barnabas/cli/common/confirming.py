"""The question before a command deletes something: asked on a terminal, unless --yes is given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["confirm", "has_terminal", "yes_option"]

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def has_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty()


def confirm(question: str | Callable[[], str], *, yes: bool) -> None:
    """Ask a question on a terminal; abort the command unless the user confirms.

    Args:
        question: the question, which names what is lost; or a function that returns it, and an
            empty text if nothing is lost.
        yes: whether the user has confirmed with --yes.
    """
    if yes or not has_terminal():
        return
    text = question if isinstance(question, str) else question()
    if text:
        click.confirm(text, abort=True, err=True)
