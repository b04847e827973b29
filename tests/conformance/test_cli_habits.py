"""Conventions of other tools that `barnabas produce` and `consume` support."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.cli_shell import Shell
from conformance.client_brokers import broker
from conformance.troubled_topics import Broker, broken_topic, client
from selection import nightly_unless

pytestmark = pytest.mark.conformance
__all__ = ["broken_topic", "broker", "client"]


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap)


def test_a_topic_may_be_given_by_an_option_as_in_kcat(shell: Shell, tmp_path: Path) -> None:
    topic = shell.topic
    shell.ok("topics", "create", "--topic", topic, "--partitions", "1")
    shell.ok("produce", "-t", topic, stdin="one\n")
    path = tmp_path / "two"
    path.write_text("two\n")
    shell.ok("produce", "-t", topic, str(path))
    shell.ok("produce", topic, str(path))
    read = ("--from", "beginning", "-e")
    assert shell.ok("consume", "-t", topic, *read) == "one\ntwo\ntwo\n"
    shell.ok("topics", "create", f"{topic}-more", "--partitions", "1")
    shell.ok("produce", f"{topic}-more", stdin="more\n")
    both = shell.ok("consume", "-t", topic, f"{topic}-more", *read)
    assert sorted(both.split()) == ["more", "one", "two", "two"]
    shell.ok("topics", "alter", "-t", topic, "--config", "retention.ms=-1")
    (described,) = shell.ok("topics", "describe", "-t", topic, "-J").splitlines()
    assert json.loads(described)["topic"] == topic
    assert shell.ok("partitions", "-t", topic, "--no-header").startswith(f"{topic}\t0\t")


def test_topics_that_exist_are_described_beside_one_that_does_not(shell: Shell) -> None:
    shell.ok("topics", "create", shell.topic)
    absent = f"{shell.topic}-absent"
    described = shell.run("topics", "describe", absent, shell.topic)
    assert described.returncode == 1
    assert described.stdout.startswith(f"{shell.topic}: 1 partition")
    assert f"error: {absent}: UNKNOWN_TOPIC_OR_PARTITION (no such topic" in described.stderr


def test_configs_may_have_units(shell: Shell) -> None:
    units = ("--config", "retention.ms=7d", "--config", "segment.bytes=1MiB")
    shell.ok("topics", "create", shell.topic, *units)
    shell.ok("configs", "set", "topic", shell.topic, "delete.retention.ms=2h")
    assert shell.json("topics", "describe", shell.topic)["configs"] == {
        "retention.ms": "604800000",
        "segment.bytes": "1048576",
        "delete.retention.ms": "7200000",
    }


def test_records_are_printed_without_a_delimiter_on_request(shell: Shell) -> None:
    shell.ok("topics", "create", shell.topic, "--partitions", "1")
    shell.ok("produce", shell.topic, "-K", ":", stdin="a:1\nb:2\n")
    words = ("consume", shell.topic, "-o", "beginning", "-e", "-D", "")
    assert shell.ok(*words) == "12"
    assert shell.ok(*words, "-K", "") == "a1b2"


def test_a_topic_created_by_a_record_is_reported_once(shell: Shell) -> None:
    first = shell.run("produce", shell.topic, stdin="a\nb\n")
    assert (first.returncode, first.stdout) == (0, "")
    assert first.stderr == f"created topic {shell.topic}\n"
    again = shell.run("produce", shell.topic, stdin="c\n")
    assert (again.returncode, again.stderr) == (0, "")
    nothing = shell.run("produce", f"{shell.topic}-unused", stdin="")
    assert (nothing.returncode, nothing.stderr) == (0, "")
    assert f"{shell.topic}-unused" not in shell.ok("topics", "list").split()


@pytest.mark.parametrize("as_member", nightly_unless(bool, [False, True]), ids=["alone", "group"])
def test_records_that_cannot_be_deserialized_are_skipped_and_counted(
    shell: Shell, as_member: bool
) -> None:
    lines = "".join(f"{text}\n" for text in ('{"n":1}', "bad", '{"n":2}', "worse", '{"n":3}'))
    shell.ok("topics", "create", shell.topic, "--partitions", "1")
    shell.ok("produce", shell.topic, stdin=lines)
    group = ("-g", f"group-{shell.topic}") if as_member else ()
    words = ("consume", shell.topic, "--from", "beginning", "-e", "-s", "value=json")
    failed = shell.run(*words)
    assert failed.returncode == 1
    assert "the value of the record at offset 1 cannot be deserialized" in failed.stderr
    assert failed.stderr.endswith(". `--on-error skip` skips such records\n")
    done = shell.run(*words, *group, "--on-error", "skip", "-n", "2")
    assert (done.returncode, done.stdout) == (0, '{"n":1}\n{"n":2}\n')
    first, total = done.stderr.splitlines()
    assert first.startswith(f"warning: skipped {shell.topic}-0 offset 1: the value cannot be")
    assert total == "warning: skipped 1 record in total"
    if as_member:
        rest = shell.run(*words, *group, "--on-error", "skip")
        assert (rest.returncode, rest.stdout) == (0, '{"n":3}\n')
        assert "skipped 1 record in total" in rest.stderr


def test_only_some_of_many_errors_are_reported_one_by_one(shell: Shell) -> None:
    shell.ok("topics", "create", shell.topic, "--partitions", "1")
    shell.ok("produce", shell.topic, stdin="bad\n" * 20 + "7\n")
    words = ("--from", "beginning", "-e", "--as", "value=json", "--on-error", "skip")
    done = shell.run("consume", shell.topic, *words)
    assert done.stdout == "7\n"
    warnings = done.stderr.splitlines()
    assert len(warnings) == 6
    assert warnings[-1] == "warning: skipped 20 records in total"


@pytest.mark.parametrize(
    "as_member", nightly_unless(lambda each: not each, [False, True]), ids=["alone", "group"]
)
def test_a_corrupt_batch_is_skipped_and_counted(
    shell: Shell, broken_topic: str, as_member: bool
) -> None:
    group = ("-g", f"group-{broken_topic}") if as_member else ()
    words = ("consume", broken_topic, *group, "--from", "beginning", "-e")
    failed = shell.run(*words)
    assert failed.returncode == 1
    assert f"{broken_topic}-0: records fetched at offset 3 are corrupt" in failed.stderr
    assert failed.stderr.endswith(". `--on-error skip` skips such records\n")
    assert {*"abc"} <= {*failed.stdout.split()}
    more = (f"{group[1]}-more",) if group else ()
    done = shell.run(*words[:2], *group[:1], *more, *words[-3:], "--on-error", "skip")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [*"abcghirstuvw"]
    first, total = done.stderr.splitlines()
    assert first == f"warning: skipped {broken_topic}-0 offset 3 to 5: a corrupt batch"
    assert total == "warning: skipped 1 corrupt batch in total"
