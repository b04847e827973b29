"""`barnabas topics`: wrong usage is reported before a connection."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from barnabas.cli.admin.topics import topics
from barnabas.cli.records.consume import consume
from barnabas.cli.records.produce import produce

NO_BROKER = ("-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=200")


def test_a_pattern_that_is_no_regular_expression_is_wrong_usage() -> None:
    done = CliRunner().invoke(topics, ["list", "[", *NO_BROKER])
    assert done.exit_code == 2
    assert "[ is not a regular expression" in done.output


def test_a_failed_topic_lookup_exits_with_status_one() -> None:
    words = ["alter", "t", "-c", "retention.ms=1", *NO_BROKER, "--timeout", "0.2"]
    done = CliRunner().invoke(topics, words)
    assert done.exit_code == 1
    assert "Connection refused" in done.output


@pytest.mark.parametrize("name", sorted(topics.commands))
def test_every_command_shows_an_example(name: str) -> None:
    assert f"barnabas topics {name}" in CliRunner().invoke(topics, [name, "--help"]).output


@pytest.mark.parametrize("command", [produce, consume])
def test_records_commands_show_examples(command) -> None:  # type: ignore[no-untyped-def]
    assert "Examples:" in CliRunner().invoke(command, ["--help"]).output
