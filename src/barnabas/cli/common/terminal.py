"""The user at the terminal: confirmations, single keys, Ctrl-C and SIGTERM.

A command asks before it deletes something, unless --yes is given. SIGTERM ends a long-running
command like Ctrl-C, including its final work. For example, `timeout 60 barnabas consume ...`
commits the printed records, and the member leaves its group.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from barnabas.runtime.keyboard import single_keys, typed_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = TypeVar("F", bound="Callable[..., Any]")

_YES_KEY = "barnabas.yes"


def _keep_yes(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_YES_KEY] = value


def yes_option_with(help_text: str, *names: str) -> Callable[[F], F]:
    """Return --yes, which may have more names.

    The command does not get this option: `confirm` reads it from the context.
    """
    names = ("-y", "--yes", *names)
    return click.option(
        *names, is_flag=True, expose_value=False, callback=_keep_yes, help=help_text
    )


yes_option = yes_option_with("Do not ask for confirmation.")


def is_confirmed() -> bool:
    """Return whether the user has confirmed with --yes."""
    return bool(click.get_current_context().meta.get(_YES_KEY))


def has_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty()


def confirm(question: str | Callable[[], str]) -> None:
    """Ask a question on a terminal; abort the command unless the user confirms.

    Args:
        question: the question, which names what is lost; or a function that returns it, and an
            empty text if nothing is lost.
    """
    if is_confirmed() or not has_terminal():
        return
    text = question if isinstance(question, str) else question()
    if text:
        click.confirm(text, abort=True, err=True)


QUIT_KEY = "q"


class Keyboard:
    """Waits between two updates of a display, unless the user presses a key."""

    def pause(self, seconds: float, keys: str = "") -> str:
        """Wait; return "q" at once if the user quits.

        Args:
            seconds: The time to wait.
            keys: Other keys that end the wait at once, in lower case.

        Returns:
            The key; "" if the time is over.
        """
        time.sleep(seconds)
        return ""


class _TerminalKeyboard(Keyboard):
    def pause(self, seconds: float, keys: str = "") -> str:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            given = typed_keys(remaining)
            if given is None:
                continue
            typed = given.decode("ascii", "ignore").lower()
            if QUIT_KEY in typed:
                return QUIT_KEY
            pressed = [key for key in typed if key in keys]
            if pressed:
                return pressed[-1]
            if not given:
                # The terminal is closed: reading again would return at once.
                return super().pause(remaining)
        return ""


@contextmanager
def quit_by_key() -> Iterator[Keyboard]:
    """Yield a keyboard; on a terminal, keys arrive without Enter and are not shown.

    Ctrl-C still raises KeyboardInterrupt.
    """
    if not sys.stdin.isatty():
        yield Keyboard()
        return
    with single_keys() as has_keys:
        yield _TerminalKeyboard() if has_keys else Keyboard()


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Make SIGTERM raise `Terminated` where Ctrl-C would raise KeyboardInterrupt.

    SIGTERM is converted to SIGINT, which the client's loop only delivers at a safe moment.
    """
    terminated = False

    def note(_number: int, _frame: object) -> None:
        nonlocal terminated
        terminated = True
        signal.raise_signal(signal.SIGINT)

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise Terminated if terminated else KeyboardInterrupt

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, note),
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status that a shell expects from a process that a signal ended."""
    number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
    return 128 + number
