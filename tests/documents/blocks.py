"""Reads the code blocks of a page, and the marks that say how the tests treat them.

A mark is an HTML comment above a block, which readers of the page do not see:
`<!-- test: WORDS -->`. The words are listed in CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Kinds that are run. `console` shows commands behind `$ ` and their output; the output of the
# others stands in the `text` block that follows.
CONSOLE, SCRIPT, PYTHON, OUTPUT = "console", "sh", "python", "text"
BROKERS = ("barnabas", "kafka")

_MARK = re.compile(r"\s*<!-- test: (.+?) -->\s*$")
_HEADING = re.compile(r"##+ (.+)")
_FENCE = re.compile(r"( *)```(\S*)\s*$")
_MARK_WORDS = re.compile(
    r"not run, (?P<not_run>\S.*)|file (?P<file>[\w./-]+)"
    r"|checked by (?P<checked_by>tests/[\w/]+\.py)"
    r"|exit (?P<status>\d+)|needs (?P<needs>\w+(?: \w+)*)|brokers? (?P<brokers>\w+(?: \w+)?)"
    r"|(?P<fresh>fresh)|(?P<kafka_only>kafka only)|(?P<eventually>eventually)"
    r"|(?P<wide>wide)"
)
_REASON_LENGTH_MIN = 10


class MarkError(ValueError):
    """A mark or a block that the rules do not have; the message has page and line."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: where its text begins, counted from 1.
        heading: the nearest heading above it.
        output: its expected output, from the `text` block behind it; None if the page does not show
        it. status: the exit status that its last command has. not_run: the reason why it is not
        run. file: the name under which it is written into the directory of the page, instead of
        run. checked_by: the other test that checks it. kafka_only: whether it runs only where the
        broker is Apache Kafka. eventually: whether its commands are repeated until their output
        equals the page. They only observe a later effect of earlier commands.
    """

    page: str
    line: int
    kind: str
    text: str
    heading: str = ""
    output: str | None = None
    status: int = 0
    not_run: str | None = None
    file: str | None = None
    checked_by: str | None = None
    kafka_only: bool = False
    eventually: bool = False

    @property
    def where(self) -> str:
        """PAGE:LINE."""
        return f"{self.page}:{self.line}"


@dataclass(slots=True)
class Section:
    """Blocks that run in order in one directory: a page, or the part of it from a `fresh` mark.

    It has the files and the requirements of the sections before it.

    Attributes:
        brokers: kinds of brokers that the page takes as running; empty if it starts its own.
        needs: what the machine must have, beside Python.
        is_wide: whether its terminals are so wide that no line is wrapped.
    """

    page: str
    title: str
    brokers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    is_wide: bool = False


def sections_of(page: str, text: str | None = None) -> list[Section]:
    """Return the sections of a page that have blocks.

    Args:
        page: path of the page from the top of the repository.
        text: what the page says; None to read the file.

    Raises:
        MarkError: an unknown mark, a block of unknown kind, or output that nothing prints.
    """
    reader = _Reader(page)
    reader.read((ROOT / page).read_text() if text is None else text)
    return [section for section in reader.sections if section.blocks]


class _Reader:
    """Goes through the lines of one page.

    Attributes:
        _marks: marks since the last block; they apply to the next one.
    """

    def __init__(self, page: str) -> None:
        self._page = page
        self._marks: dict[str, str] = {}
        self._heading = page
        self.sections = [Section(page, page)]

    def read(self, text: str) -> None:
        lines = text.splitlines()
        number = 0
        while number < len(lines):
            line = lines[number]
            number += 1
            if (heading := _HEADING.match(line)) is not None:
                self._heading = heading[1]
            if (mark := _MARK.match(line)) is not None:
                self._take_mark(mark[1], number)
            elif (fence := _FENCE.match(line)) is not None:
                end = number
                while lines[end].strip() != "```":
                    end += 1
                content = [each.removeprefix(fence[1]) for each in lines[number:end]]
                self._take_block(number + 1, fence[2], "".join(f"{each}\n" for each in content))
                number = end + 1
        if self._marks:
            raise MarkError(f"{self._page}: no block follows the mark {self._marks}")

    def _take_mark(self, words: str, line: int) -> None:
        match = _MARK_WORDS.fullmatch(words)
        if match is None:
            raise MarkError(f"{self._page}:{line}: unknown mark: {words}")
        found = {name: value for name, value in match.groupdict().items() if value}
        section = self.sections[-1]
        if "fresh" in found:
            title = f"{self._page}: {self._heading}"
            files = [block for block in section.blocks if block.file is not None]
            self.sections.append(
                Section(self._page, title, section.brokers, section.needs, files, section.is_wide)
            )
        elif "wide" in found:
            section.is_wide = True
        elif "needs" in found:
            section.needs += tuple(found["needs"].split())
        elif "brokers" in found:
            section.brokers = tuple(found["brokers"].split())
            if not set(section.brokers) <= set(BROKERS):
                raise MarkError(f"{self._page}:{line}: brokers are {' and '.join(BROKERS)}")
        elif len(found.get("not_run", "x" * _REASON_LENGTH_MIN)) < _REASON_LENGTH_MIN:
            raise MarkError(f"{self._page}:{line}: say why it cannot be run")
        else:
            self._marks |= found

    def _take_block(self, line: int, kind: str, text: str) -> None:
        blocks = self.sections[-1].blocks
        marks, self._marks = self._marks, {}
        if kind == OUTPUT and not marks:
            last = blocks[-1] if blocks else None
            if last is None or last.kind not in (SCRIPT, PYTHON) or last.output is not None:
                raise MarkError(f"{self._page}:{line}: output of no script and no program")
            blocks[-1] = _with_output(last, text)
            return
        block = Block(
            page=self._page,
            line=line,
            kind=kind,
            text=text,
            heading=self._heading,
            status=int(marks.get("status", "0")),
            not_run=marks.get("not_run"),
            file=marks.get("file"),
            checked_by=marks.get("checked_by"),
            kafka_only="kafka_only" in marks,
            eventually="eventually" in marks,
        )
        runs = kind in (CONSOLE, SCRIPT, PYTHON)
        if not (runs or block.not_run or block.file or block.checked_by):
            raise MarkError(
                f"{block.where}: a block of kind {kind or '(none)'} is not run: "
                "mark it with `file`, `checked by` or `not run`, see CONTRIBUTING.md"
            )
        blocks.append(block)


def _with_output(block: Block, output: str) -> Block:
    fields = {name: getattr(block, name) for name in Block.__dataclass_fields__}
    return Block(**{**fields, "output": output})


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, and the lines that the page shows below it."""

    text: str
    shown: tuple[str, ...]


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block.

    A command goes on over lines that begin with `> `, and after a line that ends in a backslash.
    """
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        goes_on = bool(found) and not found[-1][1]
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif goes_on and line.startswith("> "):
            found[-1][0].append(line[2:])
        elif goes_on and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            raise MarkError(f"{block.where}: a console block begins with `$ `")
    return [Command("\n".join(words), tuple(_trimmed(shown))) for words, shown in found]


def _trimmed(lines: list[str]) -> list[str]:
    """Without empty lines at the end, which only separate commands."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
