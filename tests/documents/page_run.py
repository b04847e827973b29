"""Runs the blocks of a section in order, and compares their output with the page."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from documents.blocks import CONSOLE, PYTHON, SCRIPT, Block, Command, Section, commands_of
from documents.comparison import lines_of, matches
from documents.interpreter import Interpreter
from documents.surroundings import Surroundings
from documents.terminal import Shell, Window
from waiting import eventually_equal

# Text of a page where the reader presses Ctrl-C.
INTERRUPT = "^C"
# Commands that go on: each gets a window of its own, unless it ends in `&` or detaches.
_GOES_ON = re.compile(r"barnabas (?:start|cluster start)\b(?!.*(?:&|--detach|--help)\s*$)")


class PageRun:
    """The shell, the windows and the interpreter of one section.

    Args:
        on_kafka: whether the broker that the page takes as running is Apache Kafka.
        is_wide: whether the terminals are so wide that no line is wrapped.
    """

    def __init__(
        self, surroundings: Surroundings, on_kafka: bool = False, is_wide: bool = False
    ) -> None:
        self._surroundings = surroundings
        self._directory = surroundings.directory
        self._environment = surroundings.environment()
        if is_wide:
            # A dumb terminal has 80 columns, whatever COLUMNS is.
            self._environment |= {"COLUMNS": "1000", "TERM": "vt100"}
        self._on_kafka = on_kafka
        self._windows: list[Window] = []
        self._interpreter: Interpreter | None = None
        self._shell = Shell(self._directory, self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [self._interpreter, *reversed(self._windows), self._shell]:
            if each is not None:
                each.close()
        _kill_what_is_left(self._directory)
        _unmount_what_is_left(self._directory)

    def run(self, section: Section) -> None:
        """Run all blocks.

        Raises:
            AssertionError: a block failed, or printed something else than the page shows.
        """
        for block in section.blocks:
            if block.not_run or block.checked_by or (block.kafka_only and not self._on_kafka):
                continue
            if block.file is not None:
                path = self._directory / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._surroundings.adapt(block.text))
            elif block.kind == CONSOLE:
                self._run_console(block)
            elif block.kind == SCRIPT:
                self._run_script(block)
            elif block.kind == PYTHON:
                self._run_program(block)

    def _run_console(self, block: Block) -> None:
        commands = commands_of(block)
        for command in commands:
            text = self._surroundings.adapt(command.text)
            shown = [self._surroundings.adapt(line) for line in command.shown]
            if command.shown[-1:] == (INTERRUPT,) or _GOES_ON.match(command.text):
                self._run_in_window(block, text, shown)
                continue
            wanted = block.status if command is commands[-1] else 0
            self._run_command(block, Command(text, tuple(shown)), wanted)

    def _run_command(self, block: Block, command: Command, wanted: int) -> None:
        if block.eventually:
            eventually_equal(lambda: self._problem_of(block, command, wanted), None)
            return
        problem = self._problem_of(block, command, wanted)
        assert problem is None, problem

    def _problem_of(self, block: Block, command: Command, wanted: int) -> str | None:
        """Run a command; return how it differs from the page, or None."""
        printed, status = self._shell.run_command(command.text)
        result = f"{block.where}: {command.text}\nprinted:\n{printed}"
        if status != wanted:
            return f"exit status {status} instead of {wanted}\n{result}"
        if command.shown and not matches(command.shown, printed):
            return _differs(result, command.shown)
        return None

    def _run_in_window(self, block: Block, text: str, shown: list[str]) -> None:
        window = Window(text, self._directory, self._environment)
        self._windows.append(window)
        interrupted = shown[-1:] == [INTERRUPT]
        if interrupted:
            shown.pop()
        if shown:
            window.wait_for(lambda written: matches(shown, written, begins=True))
        else:
            window.wait_for(lambda written: any("ready" in line for line in lines_of(written)))
        if interrupted:
            window.interrupt()

    def _run_script(self, block: Block) -> None:
        output, errors, status = self._shell.run_script(self._surroundings.adapt(block.text))
        assert status == block.status, f"{block.where}: exit status {status}\n{errors}\n{output}"
        self._compare(block, output)

    def _run_program(self, block: Block) -> None:
        if self._interpreter is None:
            python = self._surroundings.python
            self._interpreter = Interpreter(python, self._directory, self._environment)
        program = self._surroundings.adapt(block.text)
        printed = self._interpreter.run(program, block.where)
        # A consumer that ends when nothing comes may end before all has come.
        while "consumer_timeout_ms" in block.text and _is_beginning(printed, block.output):
            printed += self._interpreter.run(program, block.where)
        self._compare(block, printed)

    def _compare(self, block: Block, printed: str) -> None:
        if block.output is not None:
            shown = self._surroundings.adapt(block.output).splitlines()
            assert matches(shown, printed), _differs(f"{block.where} printed:\n{printed}", shown)


def _is_beginning(printed: str, wanted: str | None) -> bool:
    return wanted is not None and printed != wanted and wanted.startswith(printed)


def _differs(told: str, shown: list[str] | tuple[str, ...]) -> str:
    return "\n".join([told, "the page shows:", *shown])


def _kill_what_is_left(directory: Path) -> None:
    """Kill processes that the page has detached: they work in its directory."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(directory):
                process.send_signal(signal.SIGKILL)


def _unmount_what_is_left(directory: Path) -> None:
    """Unmount the file systems of a page that failed before it did so."""
    for partition in psutil.disk_partitions(all=True):
        if Path(partition.mountpoint).is_relative_to(directory):
            subprocess.run(["umount", "--lazy", partition.mountpoint], check=False)
