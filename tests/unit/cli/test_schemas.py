"""`barnabas schemas`: options, and what is sent to a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.common.registries import need_registry
from barnabas.cli.group import group
from barnabas.runtime import web
from unit.serializers.registry_server import RegistryServer

FLIGHT = '{"type": "record", "name": "Flight", "fields": []}'


class Commands:
    """Runs `barnabas schemas` with a registry that records the requests."""

    def __init__(self, directory: Path) -> None:
        # "METHOD /path" -> status and body; other requests get the regular response.
        self.responses: dict[str, tuple[int, Any]] = {}
        self.server = RegistryServer(self._override)
        self.directory = directory

    def _override(self, method: str, path: str, _headers: object) -> tuple[int, bytes] | None:
        found = self.responses.get(f"{method} {path}")
        return found and (found[0], json.dumps(found[1]).encode())

    def run(self, *words: str, status: int = 0, text: str = "") -> Result:
        environment = {"BARNABAS_REGISTRY": self.server.url, "HOME": str(self.directory)}
        done = CliRunner().invoke(group, ["schemas", *words], env=environment, input=text)
        assert done.exit_code == status, done.output
        return done

    def file(self, name: str, text: str = FLIGHT) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setattr(web, "pause", lambda _seconds: None)
    made = Commands(tmp_path)
    with made.server:
        yield made


NOT_REGISTERED = (404, {"error_code": 40403, "message": "Schema not found"})


@pytest.mark.parametrize(
    ("name", "kind"), [("a.avsc", "AVRO"), ("b.JSON", "JSON"), ("c.proto", "PROTOBUF")]
)
def test_the_ending_of_the_file_is_the_type(commands: Commands, name: str, kind: str) -> None:
    place = {"subject": "s", "version": 1, "id": 1, "schema": FLIGHT}
    lookups = iter([NOT_REGISTERED, (200, place)])

    def answer(method: str, path: str, _headers: object) -> tuple[int, bytes] | None:
        if path != "/subjects/s":
            return None
        status, body = next(lookups)
        return status, json.dumps(body).encode()

    commands.server.override = answer
    done = commands.run("register", "s", commands.file(name))
    assert done.output == "registered s version 1, id 1\n"
    assert commands.server.schemas == [{"schema": FLIGHT, "schemaType": kind}]


def test_a_file_without_a_known_ending_needs_a_type(commands: Commands) -> None:
    done = commands.run("register", "s", commands.file("flight.txt"), status=2)
    assert "give --type" in done.output
    commands.responses["POST /subjects/s"] = (
        200,
        {"subject": "s", "version": 4, "id": 9, "schema": FLIGHT},
    )
    done = commands.run("register", "s", "-", "--type", "Avro", text=FLIGHT)
    assert done.output == "registered before: s version 4, id 9\n"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("a.proto:airports-value:1", ("a.proto", "airports-value", 1)),
        ("http://host/a.json:airports:22", ("http://host/a.json", "airports", 22)),
        ("a.Airport::.east:airports-value:3", ("a.Airport", ":.east:airports-value", 3)),
    ],
)
def test_a_reference_names_a_schema_a_subject_and_a_version(
    commands: Commands, given: str, wanted: tuple[str, str, int]
) -> None:
    place = {"subject": "s", "version": 1, "id": 1, "schema": FLIGHT}
    commands.responses["POST /subjects/s"] = (200, place)
    commands.run("register", "s", commands.file("f.avsc"), "--reference", given)
    [body] = commands.server.bodies
    assert tuple(body["references"][0].values()) == wanted


@pytest.mark.parametrize("given", ["a.proto", "a.proto:1", "a:b:0", "a:b:latest", ":b:1", "a::1"])
def test_an_incomplete_reference_is_wrong_usage(commands: Commands, given: str) -> None:
    done = commands.run("check", "s", commands.file("f.avsc"), "--reference", given, status=2)
    assert "NAME:SUBJECT:VERSION" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("get",),
        ("get", "s", "--id", "1"),
        ("get", "--id", "1", "--version", "2"),
        ("get", "s", "--version", "0"),
        ("get", "s", "--version", "new"),
        ("compatibility", "s", "--set", "SOME"),
        ("compatibility", "s", "--set", "FULL", "--unset"),
        ("mode", "--set", "CLOSED"),
    ],
)
def test_wrong_options_are_wrong_usage(commands: Commands, words: tuple[str, ...]) -> None:
    commands.run(*words, status=2)
    assert not commands.server.requests


def test_an_unknown_subject_names_similar_ones(commands: Commands) -> None:
    commands.responses["GET /subjects?deleted=true"] = (200, ["flights-value", "weather-value"])
    for given, wanted in (("flights", "flights-value"), ("wether-value", "weather-value")):
        done = commands.run("get", given, status=1)
        assert f"has no subject {given}. Did you mean {wanted!r}?" in done.output
    done = commands.run("get", "planes", status=1)
    assert done.output == "error: the registry has no subject planes.\n"


def test_a_file_gets_the_text_exactly_as_it_is_registered(commands: Commands) -> None:
    text = 'syntax = "proto3";\n// \x1b[1m \u200f\nmessage A {}\n'
    commands.responses |= {
        "GET /subjects/s/versions": (200, [3]),
        "GET /subjects/s/versions/3": (
            200,
            {"subject": "s", "version": 3, "id": 7, "schema": text, "schemaType": "PROTOBUF"},
        ),
        "GET /subjects/s/versions/3/referencedby": (200, [8]),
    }
    done = commands.run("get", "s")
    assert done.stdout == text
    assert done.stderr == "s version 3, id 7, PROTOBUF, used by id 8\n"


def test_the_prefix_of_a_context_is_left_to_the_registry(commands: Commands) -> None:
    names = (200, [":.east:s", "s"])
    commands.responses["GET /subjects?subjectPrefix=%3A%2A%3As"] = names
    commands.responses["GET /subjects?subjectPrefix=s"] = names
    for name in ("s", "%3A.east%3As"):
        commands.responses[f"GET /subjects/{name}/versions"] = (200, [1])
        place = {"subject": name, "version": 1, "id": 1, "schema": FLIGHT}
        commands.responses[f"GET /subjects/{name}/versions/1"] = (200, place)
    assert len(commands.run("list", "--prefix", ":*:s", "--no-header").output.splitlines()) == 2
    assert len(commands.run("list", "--prefix", "s", "--no-header").output.splitlines()) == 1


def test_each_incompatibility_is_a_line_and_status_one(commands: Commands) -> None:
    path = "POST /compatibility/subjects/s/versions"
    reasons = {"is_compatible": False, "messages": ["first reason", "second reason"]}
    commands.responses[f"{path}?verbose=true"] = (200, reasons)
    commands.responses[f"{path}/2?verbose=true"] = (200, {"is_compatible": True})
    commands.responses["GET /subjects/s/versions"] = (200, [1, 2])
    file = commands.file("f.avsc")
    done = commands.run("check", "s", file, status=1)
    assert done.output == "s: not compatible\n  first reason\n  second reason\n"
    assert commands.run("check", "s", file, "--version", "2").output == "s: compatible\n"
    done = commands.run("check", "s", file, "--json", status=1)
    assert json.loads(done.output) == {"subject": "s", **reasons}


def test_messages_of_confluents_registry_are_shown_as_sentences(commands: Commands) -> None:
    problem = "{{errorType:'SOME_TYPE', description:'{}', additionalInfo:'{}'}}"
    messages = [
        problem.format("the type at path '/fields/0' differs", "reader: INT, writer: STRING"),
        problem.format("the field 'gate' has no default", "gate"),
        """{errorType:"FIELD_KIND_CHANGED", description:"the kind of '#/1' differs"}""",
        "{oldSchemaVersion: 1}",
        """{oldSchema: '{"type": "int"}'}""",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
        "another form",
    ]
    response = {"is_compatible": False, "messages": messages}
    commands.responses["POST /compatibility/subjects/s/versions?verbose=true"] = (200, response)
    assert commands.run("check", "s", commands.file("f.avsc"), status=1).output == (
        "s: not compatible (BACKWARD)\n"
        "  the type at path '/fields/0' differs (reader: INT, writer: STRING)\n"
        "  the field 'gate' has no default\n"
        "  the kind of '#/1' differs\n"
        "  another form\n"
    )


def test_a_check_says_that_the_subject_is_new(commands: Commands) -> None:
    path = "POST /compatibility/subjects/s/versions?verbose=true"
    commands.responses[path] = (200, {"is_compatible": True})
    done = commands.run("check", "s", commands.file("f.avsc"))
    assert done.output == "s: compatible, since the subject has no versions\n"


def test_an_unknown_id_is_an_error_without_a_traceback(commands: Commands) -> None:
    assert "has no schema with id 99" in commands.run("get", "--id", "99", status=1).output


def test_a_refused_registration_shows_each_incompatibility(commands: Commands) -> None:
    commands.responses |= {
        "POST /subjects/s": NOT_REGISTERED,
        "POST /subjects/s/versions": (409, {"error_code": 409, "message": "incompatible"}),
        "POST /compatibility/subjects/s/versions?verbose=true": (
            200,
            {"is_compatible": False, "messages": ["the reason"]},
        ),
    }
    done = commands.run("register", "s", commands.file("f.avsc"), status=1)
    assert done.output.endswith("earlier versions of s:\n  the reason\n")


def test_a_permanent_deletion_deletes_softly_first(commands: Commands) -> None:
    commands.responses |= {
        "DELETE /subjects/s": (200, [1, 2]),
        "DELETE /subjects/s?permanent=true": (200, [1, 2]),
        "DELETE /subjects/t/versions/3": (404, {"error_code": 40406, "message": "deleted"}),
        "DELETE /subjects/t/versions/3?permanent=true": (200, 3),
    }
    assert commands.run("delete", "s").output == "deleted: s version 1, 2\n"
    done = commands.run("delete", "s", "--permanent", "--yes")
    assert done.output == "deleted for ever: s version 1, 2\n"
    done = commands.run("delete", "t", "--version", "3", "--permanent", "--json")
    assert json.loads(done.output) == {"subject": "t", "versions": [3], "permanent": True}


def test_the_level_of_the_registry_applies_where_a_subject_has_none(commands: Commands) -> None:
    commands.responses |= {
        "GET /config": (200, {"compatibilityLevel": "BACKWARD"}),
        "GET /config/own": (200, {"compatibilityLevel": "FULL"}),
        "GET /config/none": (404, {"error_code": 40408, "message": ""}),
        "PUT /config": (200, {"compatibility": "FULL"}),
        "DELETE /config/own": (200, {"compatibilityLevel": "FULL"}),
    }
    done = commands.run("compatibility", "own", "none")
    assert (
        done.output
        == "subject\tcompatibility\tfrom\nown\tFULL\tsubject\nnone\tBACKWARD\tregistry\n"
    )
    assert (
        commands.run("compatibility", "--no-header").output == "(all others)\tBACKWARD\tregistry\n"
    )
    commands.run("compatibility", "--set", "full")
    commands.run("compatibility", "own", "--unset")
    assert commands.server.bodies == [{"compatibility": "FULL"}]
    assert "DELETE /config/own" in commands.server.requests


def test_an_unreachable_registry_is_named(commands: Commands) -> None:
    done = commands.run("list", "--registry", "http://127.0.0.1:1", status=1)
    assert "not reached: http://127.0.0.1:1/subjects" in done.output


@pytest.mark.parametrize(
    ("given", "properties", "wanted"),
    [
        (None, (), "http://127.0.0.1:8081"),
        (None, ("schema.registry.url=http://host:1",), "http://host:1"),
        ("http://option:2", ("schema.registry.url=http://host:1",), "http://option:2"),
    ],
)
def test_the_registry_is_named_by_an_option_a_setting_or_is_on_this_machine(
    given: str | None, properties: tuple[str, ...], wanted: str
) -> None:
    assert need_registry(given, properties).url == wanted
