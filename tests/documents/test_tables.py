"""The tables of the pages name existing methods, client keys and feature levels."""

from __future__ import annotations

import re
from dataclasses import fields

import barnabas
from barnabas.client.config import ALIASES, ClientConfig
from barnabas.client.producer.producer_batch import Delivery
from barnabas.replication.fetcher.fetch_states import FetchPhase
from barnabas.server.startup.features import SUPPORTED_FEATURES
from documents.blocks import ROOT, sections_of

# Beside the keys of ClientConfig: what take_parts of the two clients take.
PARTS = {
    "key_serializer", "value_serializer", "key_deserializer", "value_deserializer",
}  # fmt: skip
# The faces that the table names.
FACES = {
    "Admin": barnabas.Admin,
    "Consumer": barnabas.Consumer,
    "Delivery": Delivery,
    "Producer": barnabas.Producer,
}


def rows(title: str) -> list[list[str]]:
    text = (ROOT / "docs/migrate-client.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_method_in_the_table_exists() -> None:
    named = [row[3].strip("`") for row in rows("Methods")]
    assert len(named) > 25
    for name in named:
        face, _, method = name.partition(".")
        assert callable(getattr(FACES[face], method, None)), name


def test_every_key_in_the_table_exists() -> None:
    known = {field.name for field in fields(ClientConfig)} | set(ALIASES) | PARTS
    named = [row[2].strip("`") for row in rows("Configuration")]
    assert len(named) > 30
    assert set(named) <= known


def test_interop_md_names_the_feature_levels_that_are_supported() -> None:
    text = (ROOT / "docs/interop.md").read_text()
    table = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", text, re.MULTILINE))
    said = {name: [int(each) for each in re.findall(r"\d+", row)] for name, row in table.items()}
    supported = {name: list(levels) for name, levels in SUPPORTED_FEATURES.items()}
    assert said == supported | {name: [0] for name in said.keys() - supported.keys()}


def test_the_diagram_of_a_followers_partition_in_replication_md_has_its_phases() -> None:
    [section] = sections_of("docs/replication.md")
    diagram = section.blocks[1].text
    states = set(re.findall(r"^ +(\w+) -->", diagram, re.MULTILINE))
    phases = {phase.name.replace("_", "") for phase in FetchPhase}
    assert {state.upper() for state in states} == phases | {"FAILED"}
