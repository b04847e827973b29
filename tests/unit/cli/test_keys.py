"""The key q ends a live display at once; other keys and the terminal's state do not change it."""

from __future__ import annotations

import os
import pty
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.terminal import quit_by_key

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer than any test: a pause that ends by itself would fail the test by its timeout.
LONG_S = 3_000.0


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The descriptor to type on; standard input is the terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield ours
    os.close(ours)


def test_the_key_q_ends_the_pause(keyboard: int) -> None:
    with quit_by_key() as keys:
        os.write(keyboard, b"q")
        assert keys.pause(LONG_S) == "q"


def test_a_given_key_ends_the_pause_and_is_returned(keyboard: int) -> None:
    with quit_by_key() as keys:
        os.write(keyboard, b"xR")
        assert keys.pause(LONG_S, "lr") == "r"


def test_other_keys_do_not_end_the_pause(keyboard: int) -> None:
    with quit_by_key() as keys:
        os.write(keyboard, b"x\n")
        assert not keys.pause(0.01)


def test_the_terminal_is_as_before_afterwards(keyboard: int) -> None:
    before = termios.tcgetattr(sys.stdin)
    with quit_by_key():
        assert termios.tcgetattr(sys.stdin) != before
    assert termios.tcgetattr(sys.stdin) == before


def test_without_a_terminal_the_pause_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with quit_by_key() as keys:
            assert not keys.pause(0.0)
