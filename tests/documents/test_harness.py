"""The harness itself: blocks, marks, comparison, and failures of wrong pages."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from documents.blocks import Command, MarkError, Section, commands_of, sections_of
from documents.comparison import matches
from documents.page_run import PageRun
from documents.surroundings import Surroundings


def page(text: str) -> list[Section]:
    # Fences are written with ''' here, so that no block of this file looks like one of a page.
    return sections_of("page.md", textwrap.dedent(text).replace("'''", "```"))


def run(tmp_path: Path, text: str) -> None:
    with PageRun(Surroundings(tmp_path / "page")) as running:
        for section in page(text):
            running.run(section)


def test_a_console_block_gives_commands_with_what_the_page_shows_below_them() -> None:
    [section] = page("""
        '''console
        $ cat << END
        > one
        > END
        one
        $ echo \\
            two
        two

        $ true
        '''
        """)
    assert commands_of(section.blocks[0]) == [
        Command("cat << END\none\nEND", ("one",)),
        Command("echo \\\n    two", ("two",)),
        Command("true", ()),
    ]


def test_marks_apply_to_the_next_block_and_fresh_begins_a_section() -> None:
    first, second = page("""
        <!-- test: needs kcat -->
        <!-- test: not run, it needs three machines -->
        '''console
        $ reboot
        '''
        <!-- test: fresh -->
        ## Another
        <!-- test: file node.properties -->
        '''properties
        node.id=1
        '''
        """)
    assert first.needs == ("kcat",)
    assert first.blocks[0].not_run == "it needs three machines"
    assert second.blocks[0].file == "node.properties"
    assert second.blocks[0].not_run is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- test: skip -->\n'''console\n$ x\n'''", "unknown mark"),
        ("<!-- test: not run, no -->\n'''console\n$ x\n'''", "say why"),
        ("'''yaml\na: 1\n'''", "kind yaml is not run"),
        ("'''\na\n'''", "is not run"),
        ("'''text\na\n'''", "output of no script"),
        ("<!-- test: exit 1 -->", "no block follows"),
        ("<!-- test: brokers redpanda -->", "brokers are"),
    ],
)
def test_unknown_marks_and_blocks_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(MarkError, match=complaint):
        page(text)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["one", "two"], "one\r\ntwo\r\n"),
        (["a … z"], "a b c z"),
        (["first", "…", "last"], "first\n1\n2\nlast\n"),
        (["first", "…", "last"], "first\nlast\n"),
        (["3 records in 1.5 s"], "3 records in 12 s"),
        (["at 2026-01-02 10:11:12"], "at 2027-11-12T01:02:03.456Z"),
        (["id MkU3OEVBNTcwNTJENDM2Qg"], "id QdpNxGgtTRWZIrBfgrTZkg"),
        (["name   size"], "\x1b[1mname size\x1b[0m"),
        (["done"], "10%\r50%\rdone\n"),
    ],
)
def test_values_that_differ_between_runs_match(shown: list[str], printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["one"], "one\ntwo"),
        (["one", "two"], "one"),
        (["3 records"], "4 records"),
        (["a … z"], "a b\nz"),
        (["group billing"], "group shipping"),
        ([""], "one"),
    ],
)
def test_another_output_does_not_match(shown: list[str], printed: str) -> None:
    assert not matches(shown, printed)


def test_a_server_may_print_more_than_the_page_shows() -> None:
    assert matches(["ready"], "ready\nmetrics\n", begins=True)
    assert not matches(["metrics"], "ready\nmetrics\n", begins=True)


def test_a_correct_page_passes(tmp_path: Path) -> None:
    run(tmp_path, """
        '''console
        $ barnabas start --data-dir data
        ready 127.0.0.1:9092
        '''
        <!-- test: file lines.txt -->
        '''text
        hello
        '''
        '''console
        $ export TOPIC=greetings
        $ barnabas produce $TOPIC < lines.txt
        '''
        <!-- test: exit 3 -->
        '''console
        $ sh -c 'echo no >&2; exit 3'
        no
        '''
        '''sh
        barnabas consume $TOPIC --from beginning --exit-at-end
        '''
        '''text
        hello
        '''
        '''python
        from barnabas import Consumer
        '''
        '''python
        with Consumer(bootstrap_servers="127.0.0.1:9092") as consumer:
            print(consumer.list_topics())
        '''
        '''text
        …'greetings'…
        '''
        """)  # fmt: skip


@pytest.mark.parametrize(
    "block",
    [
        "'''console\n$ echo one\ntwo\n'''",
        "'''console\n$ false\n'''",
        "<!-- test: exit 2 -->\n'''console\n$ true\n'''",
        "'''sh\nfalse\necho one\n'''",
        "'''sh\necho one\n'''\n'''text\ntwo\n'''",
        "'''python\nprint(1)\n'''\n'''text\n2\n'''",
        "'''python\nraise ValueError\n'''",
        "'''console\n$ barnabas start --no-such-option\n'''",
        "'''console\n$ barnabas start --data-dir data\nready 127.0.0.1:1\n^C\n'''",
    ],
)
def test_a_wrong_page_fails(tmp_path: Path, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("documents.terminal.SEEN_TIMEOUT_S", 3.0)
    with pytest.raises(AssertionError):
        run(tmp_path, block)


def test_ctrl_c_ends_a_server_and_frees_its_port(tmp_path: Path) -> None:
    server = "'''console\n$ barnabas start --data-dir data\nready 127.0.0.1:9092\n^C\n'''\n"
    run(tmp_path, server + server)


def test_commands_of_a_block_marked_eventually_are_repeated(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        <!-- test: exit 1 -->
        <!-- test: eventually -->
        '''console
        $ echo x >> seen; test $(wc -l < seen) = 3 && echo third && false
        third
        '''
        """,
    )
