"""Templates of `barnabas consume`."""

from __future__ import annotations

import os

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.consume import _check_reader, compile_template, consume
from barnabas.client.record_decoding import ConsumerRecord

RECORD = ConsumerRecord("t", 3, 42, 1000, 0, b"key", b"value", [("a", b"b"), ("c", None)])


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("%s\\n", b"value\n"),
        ("%t %p:%o at %T", b"t 3:42 at 1000"),
        ("%k(%K)=%s(%S)", b"key(3)=value(5)"),
        ("%h\\t100%%", b"a=b,c=NULL\t100%"),
        ("\\\\n", b"\\n"),
    ],
)
def test_a_template_prints_a_record(template: str, printed: bytes) -> None:
    assert compile_template(template)(RECORD) == printed


def test_a_null_key_has_length_minus_one() -> None:
    assert compile_template("%K")(RECORD._replace(key=None)) == b"-1"


def test_an_unknown_letter_is_an_error_that_names_it() -> None:
    with pytest.raises(click.UsageError, match="%q"):
        compile_template("%q")


def test_a_reader_that_has_gone_is_noticed_without_writing() -> None:
    reading, writing = os.pipe()
    try:
        _check_reader(writing)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            _check_reader(writing)
    finally:
        os.close(writing)


def test_a_group_needs_a_name() -> None:
    done = CliRunner().invoke(consume, ["t", "-g", ""])
    assert done.exit_code == 2
    assert "--group needs a name" in done.output
