"""Rules of operators are read strictly: a typing error must not leave a secret unmasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.console.command import console
from barnabas.console.messages.given_rules import (
    RuleError,
    parse_format,
    parse_masks,
    parse_protobuf,
)
from barnabas.console.messages.masking import HASH, HIDE, LAST_4, MaskRule


def test_masks_are_tables_of_a_file() -> None:
    text = b"""
[[mask]]
topic = "orders*"
where = "value"
path = "customer.card"
how = "last4"
reveal = true

[[mask]]
topic = "users"
where = "header"
path = ["trace.id"]
how = "hash"

[[mask]]
topic = "users"
where = "key"
"""
    assert parse_masks(text) == (
        MaskRule("orders*", "value", ("customer", "card"), LAST_4, reveal=True),
        MaskRule("users", "header", ("trace.id",), HASH),
        MaskRule("users", "key", (), HIDE),
    )


RULE = '[[mask]]\ntopic = "t"\nwhere = "value"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rules"),
        ("mask = []", "no rules"),
        ("mask = [1]", "mask 1 is not a table"),
        ("[[masks]]\n" + RULE, "unknown name masks"),
        ("not toml", "not TOML"),
        ('[[mask]]\nwhere = "value"', "topic must be"),
        ('[[mask]]\ntopic = "t"', "where must be one of key, value, header"),
        (RULE + "paths = 1", "unknown name paths"),
        (RULE + "path = 1", "path must be names"),
        (RULE + 'path = "a..b"', "path must be names"),
        (RULE + "path = [1]", "path must be names"),
        (RULE + 'how = "show"', "how must be one of hide, last4, hash"),
        (RULE + 'reveal = "yes"', "reveal must be"),
        (RULE + RULE + "how = 1", "mask 2: how"),
    ],
)
def test_malformed_masks_are_refused(text: str, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        parse_masks(text.encode())


def test_formats_are_for_values_or_keys_of_topics() -> None:
    for text, expected in (
        ("orders=cbor", ("orders", "value")),
        ("orders*:key=hex", ("orders*", "key")),
        ("a.b:value=json", ("a.b", "value")),
    ):
        assert parse_format(text)[:2] == expected
    for text in ("orders", "=cbor", "orders=", "orders:header=hex", "orders=avro"):
        with pytest.raises(RuleError):
            parse_format(text)


def test_files_may_have_colons_in_their_names() -> None:
    loaded = []

    def load(file: str, message: str) -> type[bytes]:
        loaded.append((file, message))
        return bytes

    parse_protobuf("t=C:\\a.proto:pkg.Order", load)  # type: ignore[arg-type] # decodes nothing
    assert loaded == [("C:\\a.proto", "pkg.Order")]
    for text in ("t=file", "t=:Order", "t=file:"):
        with pytest.raises(RuleError):
            parse_protobuf(text, load)  # type: ignore[arg-type] # decodes nothing


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--mask", "missing.toml"], "--mask missing.toml cannot be read"),
        (["--mask", "empty.toml"], "--mask empty.toml: no rules"),
        (["--format", "t=word"], "--format 'word' is not one of json"),
        (["--protobuf", "t=missing.proto:A"], "--protobuf missing.proto cannot be read"),
        (["--protobuf", "t=a.proto:B"], "has no message B; it has A"),
    ],
)
def test_a_console_does_not_start_with_wrong_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.toml").touch()
    Path("a.proto").write_text('syntax = "proto3"; message A { string a = 1; }')
    found = CliRunner().invoke(console, ["-b", "127.0.0.1:1", *options])
    assert found.exit_code == 2
    assert text in found.output
