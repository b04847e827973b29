"""`barnabas schemas` with the registry of Barnabas and with Apicurio Registry."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.group import group

pytestmark = pytest.mark.conformance

_numbers = itertools.count(1)
AIRPORT = 'syntax = "proto3";\npackage air;\n\nmessage Airport {\n  string code = 1;\n}\n'
FLIGHT = (
    'syntax = "proto3";\npackage air;\n\nimport "airport.proto";\n\n'
    "message Flight {\n  Airport to = 1;\n}\n"
)
PLANE = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Plane", "type": "object"}


class Commands:
    """Runs commands with one registry; their subjects have a prefix of their own."""

    def __init__(self, url: str, directory: Path) -> None:
        self.prefix = f"commands-{next(_numbers)}-"
        self.airports, self.flights = f"{self.prefix}airports", f"{self.prefix}flights"
        self._directory = directory
        self._environment = {"BARNABAS_REGISTRY": url, "HOME": str(directory)}

    def run(self, *words: str, status: int = 0) -> str:
        """Return the standard output of a command, or its errors if it must fail."""
        done = CliRunner().invoke(group, ["schemas", *words], env=self._environment)
        assert done.exit_code == status, done.output
        return done.stdout if status == 0 else done.output

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def file(self, name: str, text: str) -> str:
        path = self._directory / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def commands(registry_url: str, tmp_path: Path) -> Commands:
    return Commands(registry_url, tmp_path)


def test_a_schema_with_a_reference_is_registered_shown_and_protected(commands: Commands) -> None:
    first = commands.json("register", commands.airports, commands.file("airport.proto", AIRPORT))
    assert (first["version"], first["type"], first["is_new"]) == (1, "PROTOBUF", True)
    reference = f"airport.proto:{commands.airports}:1"
    file = commands.file("flight.proto", FLIGHT)
    words = ("register", commands.flights, file, "--reference", reference)
    made = commands.json(*words)
    assert not commands.json(*words)["is_new"]
    assert commands.run("get", commands.flights) == FLIGHT
    shown = commands.json("get", "--id", str(made["id"]))
    assert shown["references"] == [
        {"name": "airport.proto", "subject": commands.airports, "version": 1}
    ]
    assert shown["versions"] == [{"subject": commands.flights, "version": 1}]
    assert commands.json("get", commands.airports)["referenced_by"] == [made["id"]]
    commands.run("delete", commands.airports, "--version", "1", status=1)
    assert commands.run("list", "--no-header", "--prefix", commands.prefix) == (
        f"{commands.airports}\t1\t{first['id']}\tPROTOBUF\n"
        f"{commands.flights}\t1\t{made['id']}\tPROTOBUF\n"
    )


def test_incompatible_schemas_are_found_before_their_registration(commands: Commands) -> None:
    subject = commands.flights
    schema: dict[str, Any] = {"type": "record", "name": "F", "fields": []}
    commands.run("register", subject, commands.file("flight.avsc", json.dumps(schema)))
    commands.run("compatibility", subject, "--set", "backward")
    [level] = commands.json("compatibility", subject)
    assert level == {"subject": subject, "compatibility": "BACKWARD", "from": "subject"}
    schema["fields"] = [{"name": "gate", "type": "string"}]
    newer = commands.file("flight.avsc", json.dumps(schema))
    assert f"{subject}: not compatible" in commands.run("check", subject, newer, status=1)
    refused = commands.run("register", subject, newer, status=1)
    assert "not compatible with earlier versions" in refused
    commands.run("compatibility", subject, "--set", "none")
    commands.run("register", subject, newer)
    versions = [each["version"] for each in commands.json("list", subject, "--versions")]
    assert versions == [1, 2]


def test_a_deleted_subject_comes_back_by_a_registration(commands: Commands) -> None:
    subject, file = commands.flights, commands.file("plane.json", json.dumps(PLANE))
    number = commands.json("register", subject, file)["id"]
    assert commands.json("delete", subject)["versions"] == [1]
    assert f"the subject {subject} is deleted" in commands.run("get", subject, status=1)
    assert commands.json("get", "--id", str(number))["type"] == "JSON"
    again = commands.json("register", subject, file)
    assert (again["id"], again["version"]) == (number, 2)
    commands.run("delete", subject, "--permanent", "--yes")
    assert f"no subject {subject}" in commands.run("get", subject, status=1)
