"""Sentences of the documents are short enough to be understood at the first reading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS_MAX = 35
PAGES = [
    "ARCHITECTURE.md",
    "README.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
# The texts of these pages come from the code: help texts, and the documentation of keys.
GENERATED = {"docs/cli.md", "docs/configuration.md"}
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# A command writes this part of docs/compatibility.md.
WRITTEN = re.compile(r"<!-- written by.*?(?=^<!--)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# A paragraph, an item of a list, a cell of a table and a heading end a sentence.
END_OF_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|(?<!\\)\|")
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[)*\"]*\s+")


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page, without code blocks; a code span is one word."""
    text = COMMENT.sub("", WRITTEN.sub("", CODE_BLOCK.sub("\n\n", markdown)))
    text = re.sub(r"`[^`]*`", "`code`", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = END_OF_BLOCK.split(text)
    parts = [part for block in blocks for part in END_OF_SENTENCE.split(block.strip())]
    return [" ".join(part.split()) for part in parts if part.strip()]


def words(sentence: str) -> int:
    return len(re.findall(r"\S*[\w`]\S*", sentence))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_a_sentence_of_a_document_has_at_most_35_words(page: str) -> None:
    long = [each for each in sentences((ROOT / page).read_text()) if words(each) > WORDS_MAX]
    assert not long, "\n".join(f"{words(each)} words: {each}" for each in long)


def test_sentences_end_at_points_paragraphs_items_and_cells() -> None:
    page = "# Head\n\nOne two.  Three\nfour: `a b. C` five.\n\n- Six\n- seven\n\n| eight | nine |\n"
    found = sentences(page + "```sh\nnot. This\n```\n")
    assert found == [
        "# Head",
        "One two.",
        "Three four: `code` five.",
        "- Six",
        "- seven",
        "eight",
        "nine",
    ]
    assert words(found[2]) == 4
