"""The committed field tables agree with Kafka's schema files.

The schema files come from the schema folder beside the repository, or from the jars of Kafka.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import APIS_WITHOUT_TABLES
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Array, Field, Kind, Message, Struct, version_range
from unit.protocol.protocol_values import UNNUMBERED, message_classes

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT.parent / "shared" / "kafka-schemas"
MODULES = (
    "clients", "group-coordinator", "metadata", "raft", "share-coordinator", "storage",
    "transaction-coordinator",
)  # fmt: skip


@pytest.fixture(scope="session")
def schemas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `4.4/<module>/*.json` and `3.9-clients/*.json`."""
    if FOLDER.is_dir():
        return FOLDER
    kafka_jars: Callable[[str], str] = request.getfixturevalue("kafka_jars")
    folder = tmp_path_factory.mktemp("schemas")
    for module in MODULES:
        unpack(kafka_jars("kafka"), f"kafka-{module}-4.", folder / "4.4" / module)
    unpack(kafka_jars("kafka-3.9"), "kafka-clients-3.9", folder / "3.9-clients")
    return folder


def unpack(class_path: str, jar: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    [path] = [each for each in class_path.split(os.pathsep) if Path(each).name.startswith(jar)]
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                (folder / Path(name).name).write_bytes(archive.read(name))


def schema_of(schemas: Path, cls: type[Message], release: str) -> dict[str, Any] | None:
    name = "ZkMigrationRecord" if cls.__name__ == "ZkMigrationStateRecord" else cls.__name__
    folder = schemas / release
    for path in [*folder.glob(f"{name}.json"), *folder.glob(f"*/{name}.json")]:
        text = re.sub(r"(?m)(^|\s)//[^\"\n]*$|^\s*//.*$", "", path.read_text())
        schema: dict[str, Any] = json.loads(text)
        return None if schema["validVersions"] == "none" else schema
    return None


def normalized(name: str) -> str:
    return name.replace("_", "").lower()


def default_of(each: dict[str, Any], kind: Any) -> Any:
    text = each.get("default")
    if text == "null":
        return None
    if text is None or text == "":
        return kind.implicit_default if isinstance(kind, Kind) else "empty"
    if each["type"] == "bool":
        return str(text).lower() == "true"
    return text if each["type"] == "string" else int(str(text), 0)


def differences(
    fields: tuple[Field, ...], listed: list[dict[str, Any]], common: dict[str, Any]
) -> list[str]:
    ours = {normalized(each.name): each for each in fields}
    found = []
    for theirs in listed:
        each = ours.get(theirs["name"].lower())
        if each is None:
            found.append(f"{theirs['name']} is missing")
            continue
        kind: Any = each.kind
        element = kind.element if isinstance(kind, Array) else kind
        type_name = element.name if isinstance(element, Kind) else element.__name__
        listed_type = theirs["type"].removeprefix("[]")
        default = each.default()
        facts = {
            "type": type_name in (listed_type, f"{listed_type}Request", f"{listed_type}Response"),
            "array": isinstance(kind, Array) is theirs["type"].startswith("[]"),
            "versions": each.versions == (theirs.get("versions") or theirs["taggedVersions"]),
            "nullable": each.nullable_versions == theirs.get("nullableVersions", "none"),
            "tag": each.tag == (int(theirs["tag"]) if "tag" in theirs else None),
            "ignorable": each.ignorable is bool(theirs.get("ignorable", False)),
            "default": default_of(theirs, kind)
            == ("empty" if isinstance(default, list | Struct) else default),
        }
        found += [f"{each!r}: {fact}" for fact, is_same in facts.items() if not is_same]
        if not isinstance(element, Kind):
            subfields = theirs.get("fields") or common[listed_type]["fields"]
            found += differences(element.__fields__, subfields, common)
    return found


def common_structs(schema: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in schema.get("commonStructs", ())}


def in_order(fields: tuple[Field, ...], listed: list[dict[str, Any]]) -> bool:
    names = [each["name"].lower() for each in listed]
    return [normalized(each.name) for each in fields if normalized(each.name) in names] == names


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_tables_have_every_field_of_the_schema(schemas: Path, cls: type[Message]) -> None:
    schema = schema_of(schemas, cls, "4.4") or schema_of(schemas, cls, "3.9-clients")
    assert schema is not None
    assert differences(cls.__fields__, schema["fields"], common_structs(schema)) == []
    assert in_order(cls.__fields__, schema["fields"])
    flexible = version_range(schema["flexibleVersions"])
    assert cls.__flexible_from__ == (32768 if flexible is None else flexible[0])
    valid = version_range(schema["validVersions"])
    assert valid is not None
    assert cls.__versions__[1] == valid[1]
    assert cls.__versions__[0] <= valid[0]


def their_layout(listed: list[dict[str, Any]], common: dict[str, Any], version: int) -> list[Any]:
    """Return name and type of every field of a version according to the schema."""
    layout = []
    for each in listed:
        limits = version_range(each.get("versions") or each["taggedVersions"])
        if limits is None or not limits[0] <= version <= limits[1]:
            continue
        nullable = version_range(each.get("nullableVersions", "none"))
        type_name = each["type"].removeprefix("[]")
        subfields = each.get("fields") or common.get(type_name, {}).get("fields")
        layout.append(
            (
                each["name"].lower(),
                each["type"].startswith("[]"),
                nullable is not None and nullable[0] <= version <= nullable[1],
                their_layout(subfields, common, version) if subfields else type_name,
            )
        )
    return layout


def our_layout(fields: tuple[Field, ...], version: int) -> list[Any]:
    """Return name and type of every field of a version according to the committed table."""
    layout = []
    for each in fields:
        if not each.is_in(version):
            continue
        element: Any = each.kind.element if isinstance(each.kind, Array) else each.kind
        is_primitive = isinstance(element, Kind)
        layout.append(
            (
                normalized(each.name),
                isinstance(each.kind, Array),
                each.is_nullable(version),
                element.name if is_primitive else our_layout(element.__fields__, version),
            )
        )
    return layout


def test_dropped_versions_have_the_layout_of_the_older_release(schemas: Path) -> None:
    compared = 0
    for cls in message_classes():
        newer, older = schema_of(schemas, cls, "4.4"), schema_of(schemas, cls, "3.9-clients")
        if older is None:
            continue
        first, last = version_range(older["validVersions"]) or (0, -1)
        kept = version_range(newer["validVersions"]) if newer else None
        for version in range(first, last + 1):
            if version < cls.__versions__[0] or (kept and version >= kept[0]):
                continue
            theirs = their_layout(older["fields"], common_structs(older), version)
            assert our_layout(cls.__fields__, version) == theirs, (cls.__name__, version)
            compared += 1
    assert compared > 50


def test_committed_files_equal_the_output_of_the_tool(schemas: Path, tmp_path: Path) -> None:
    tool = ROOT / "tools" / "import_schemas.py"
    done = subprocess.run(
        [sys.executable, str(tool), str(schemas), "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package = ROOT / "src" / "barnabas" / "protocol"
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py"))
    assert len(written) > 40
    for path in written:
        assert (package / path).read_text() == (tmp_path / path).read_text(), path
    for folder in ("messages", "records"):
        committed = {path.name for path in (package / folder).glob("*.py")} - {"__init__.py"}
        assert committed == {path.name for path in written if path.parent.name == folder}


def test_each_committed_table_is_used() -> None:
    """The sources or tests name each request, and each record without a record type."""
    used: set[str] = set()
    for path in [path for top in ("src", "tests") for path in (ROOT / top).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                used |= {each.name for each in node.names}
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    requests = {each.__name__ for each in message_classes() if each.__name__.endswith("Request")}
    assert requests | {name for _, name in UNNUMBERED} <= used


@pytest.mark.parametrize("api_key", sorted(APIS_WITHOUT_TABLES))
def test_the_error_of_an_api_without_tables_explains_how_to_add_them(api_key: int) -> None:
    with pytest.raises(ProtocolError, match="remove it from UNUSED_APIS in tools/import_schemas"):
        request_class(api_key)
