"""Write the field tables of `barnabas.protocol` from Kafka's message schema files.

    python tools/import_schemas.py [SCHEMA_DIR] [--output PACKAGE_DIR]

SCHEMA_DIR (default ../shared/kafka-schemas, from the repository's root) holds `4.4/<module>/*.json`
and `3.9-clients/*.json`. What 4.0 dropped and 3.9 still had is merged in: version ranges, fields
and whole messages. Names, types, version ranges, tags and defaults are taken over; prose is not.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE_NOTE = "Field table imported from Apache Kafka's message schemas by tools/import_schemas.py."

KINDS = {
    "bool": ("BOOL", "bool"),
    "int8": ("INT8", "int"),
    "int16": ("INT16", "int"),
    "int32": ("INT32", "int"),
    "int64": ("INT64", "int"),
    "uint16": ("UINT16", "int"),
    "uint32": ("UINT32", "int"),
    "float64": ("FLOAT64", "float"),
    "uuid": ("UUID", "bytes"),
    "string": ("STRING", "str"),
    "bytes": ("BYTES", "bytes"),
    "records": ("RECORDS", "Records"),
}
IMPLICIT = {"bool": "False", "float64": "0.0", "uuid": "ZERO_UUID", "string": '""', "bytes": 'b""'}

FAMILIES = {
    "metadata": "the metadata log",
    "group-coordinator": "the group coordinator's log",
    "transaction-coordinator": "the transaction coordinator's log",
    "share-coordinator": "the share coordinator's log",
    "storage": "the broker's storage",
    "raft": "the quorum state file",
    "clients": "control batches and clients' payloads",
}


def load(path: Path) -> dict[str, Any]:
    """Read a schema: JSON with // comments."""
    text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\s//[^\"\n]*$", "", text, flags=re.MULTILINE)
    schema: dict[str, Any] = json.loads(text)
    return schema


def snake(name: str) -> str:
    """`isKRaftController` -> `is_kraft_controller`, `Enable2Pc` -> `enable_2pc`."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return name.replace("enable2_pc", "enable_2pc")


def span(versions: str | None) -> tuple[int, int] | None:
    """An inclusive range; open at the top is 32767."""
    if versions is None or versions == "none":
        return None
    if versions.endswith("+"):
        return int(versions[:-1]), 0x7FFF
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def versions_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def version_words(versions: str) -> str:
    return f"versions {versions}" if "-" in versions else f"version {versions}"


# -- merging the two releases


def merged(new: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """The newer schema, widened by the versions that only the older one has."""
    if old is None:
        return new
    new_span, old_span = span(new["validVersions"]), span(old["validVersions"])
    if new_span is None:
        return old
    if old_span is None or old_span[0] >= new_span[0]:
        return new
    result = dict(new)
    result["validVersions"] = versions_text(old_span[0], new_span[1])
    result["fields"] = merged_fields(new["fields"], old["fields"], new_span[0])
    return result


def merged_fields(
    new: list[dict[str, Any]], old: list[dict[str, Any]], dropped_below: int
) -> list[dict[str, Any]]:
    """The newer fields, with those of the older release put back that ended before it began."""
    old_by_name = {each["name"]: each for each in old}
    result = []
    for each in new:
        match = old_by_name.get(each["name"])
        if match is not None and "fields" in each and "fields" in match:
            each = {**each, "fields": merged_fields(each["fields"], match["fields"], dropped_below)}
        result.append(each)
    known = {each["name"] for each in new}
    for index, each in enumerate(old):
        limits = span(each["versions"])
        if each["name"] in known or limits is None or limits[1] >= dropped_below:
            continue
        before = {other["name"] for other in old[:index]}
        place = 1 + max(
            (at for at, other in enumerate(result) if other["name"] in before), default=-1
        )
        result.insert(place, each)
    return result


# -- writing one file


@dataclass
class ClassText:
    """One class of an output file."""

    name: str
    header: str
    lines: list[str] = field(default_factory=list)


class ModuleWriter:
    """Collects the classes of one output file and the names that they import."""

    def __init__(self, schemas: list[dict[str, Any]]) -> None:
        self._schemas = schemas
        self._classes: list[ClassText] = []
        self._imports: set[str] = set()
        self._needs_records = False
        self._collisions = self._find_collisions()

    def text(self, doc: str) -> str:
        for schema in self._schemas:
            self._message(schema)
        names = ", ".join(sorted(self._imports))
        lines = [f'"""{doc}', "", SOURCE_NOTE, '"""', "", "from __future__ import annotations", ""]
        if self._needs_records:
            lines += ["from typing import TYPE_CHECKING", ""]
        lines += [f"from barnabas.protocol.schema import {names}", ""]
        if self._needs_records:
            lines += ["if TYPE_CHECKING:", "    from barnabas.protocol.chunks import Records", ""]
        for each in self._classes:
            lines += ["", each.header, *(each.lines or ["    pass"]), ""]
        return "\n".join(lines)

    def _find_collisions(self) -> set[str]:
        seen: set[str] = set()
        twice: set[str] = set()
        for schema in self._schemas:
            names = {name for name, _ in struct_definitions(schema)}
            twice |= seen & names
            seen |= names
        return twice

    def _message(self, schema: dict[str, Any]) -> None:
        suffix = schema["type"].removeprefix("coordinator-").capitalize()
        rename = {name: name + suffix for name in self._collisions}
        presence = struct_presence(schema)
        for name, fields in struct_definitions(schema):
            self._imports.add("Struct")
            self._class(rename.get(name, name), "Struct", fields, presence[name], rename)
        base = "Message" if schema["type"] in ("request", "response") else "Record"
        self._imports.add(base)
        options = [base]
        if "apiKey" in schema:
            option = "api_key" if base == "Message" else "type"
            options.append(f"{option}={schema['apiKey']}")
        options.append(f'versions="{schema["validVersions"]}"')
        if schema["flexibleVersions"] != "none":
            options.append(f'flexible="{schema["flexibleVersions"]}"')
        valid = span(schema["validVersions"])
        assert valid is not None
        self._class(schema["name"], ", ".join(options), schema["fields"], valid, rename)

    def _class(
        self,
        name: str,
        bases: str,
        fields: list[dict[str, Any]],
        presence: tuple[int, int],
        rename: dict[str, str],
    ) -> None:
        text = ClassText(name, f"class {name}({bases}):")
        for each in fields:
            text.lines.append("    " + self._field(each, presence, rename))
        self._classes.append(text)

    def _field(
        self, each: dict[str, Any], presence: tuple[int, int], rename: dict[str, str]
    ) -> str:
        kind, annotation = self._kind(each["type"], rename)
        versions = each.get("versions") or each["taggedVersions"]
        options = [kind, f'"{versions}"']
        nullable = each.get("nullableVersions", "none")
        if nullable != "none":
            annotation += " | None"
            options.append(f'nullable="{nullable}"')
        default = default_text(each, versions, presence, kind)
        if default:
            options.append(default)
            if "ZERO_UUID" in default:
                self._imports.add("ZERO_UUID")
        if "tag" in each:
            options.append(f"tag={int(each['tag'])}")
        if each.get("ignorable"):
            options.append("ignorable=True")
        self._imports.add("field")
        return f"{snake(each['name'])}: {annotation} = field({', '.join(options)})"

    def _kind(self, type_text: str, rename: dict[str, str]) -> tuple[str, str]:
        if type_text.startswith("[]"):
            kind, annotation = self._kind(type_text[2:], rename)
            self._imports.add("array")
            return f"array({kind})", f"list[{annotation}]"
        if type_text in KINDS:
            kind, annotation = KINDS[type_text]
            self._imports.add(kind)
            self._needs_records |= kind == "RECORDS"
            return kind, annotation
        name = rename.get(type_text, type_text)
        return name, name


def struct_definitions(schema: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The structs of a message, each after those that it uses."""
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
    found: dict[str, list[dict[str, Any]]] = {}

    def visit(fields: list[dict[str, Any]]) -> None:
        for each in fields:
            name = each["type"].removeprefix("[]")
            if name in KINDS or name in found:
                continue
            inside = each.get("fields") or common[name]
            visit(inside)
            found[name] = inside

    visit(schema["fields"])
    return list(found.items())


def struct_presence(schema: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The versions of the message in which each struct can occur."""
    definitions = dict(struct_definitions(schema))
    presence: dict[str, tuple[int, int]] = {}

    def visit(fields: list[dict[str, Any]], first: int, last: int) -> None:
        for each in fields:
            name = each["type"].removeprefix("[]")
            limits = span(each.get("versions") or each.get("taggedVersions"))
            if name not in definitions or limits is None:
                continue
            low, high = max(first, limits[0]), min(last, limits[1])
            before = presence.get(name, (low, high))
            presence[name] = (min(low, before[0]), max(high, before[1]))
            visit(definitions[name], low, high)

    valid = span(schema["validVersions"])
    assert valid is not None
    visit(schema["fields"], *valid)
    return presence


def default_text(each: dict[str, Any], versions: str, presence: tuple[int, int], kind: str) -> str:
    """The keyword for a field's default; empty for a field that a caller has to give."""
    type_text = each["type"]
    # A default that is JSON's null means "none given"; a null default is the string "null".
    if each.get("default") is not None:
        return f"default={literal(each['default'], type_text)}"
    limits = span(versions)
    assert limits is not None
    is_always = limits[0] <= presence[0] and limits[1] >= presence[1] and "tag" not in each
    if is_always and each["name"] != "ThrottleTimeMs":
        return ""
    if type_text.startswith("[]"):
        return "default=[]"
    if type_text == "records":
        return "default=None"
    if type_text in KINDS:
        return f"default={IMPLICIT.get(type_text, '0')}"
    return f"default={kind}"


def literal(default: Any, type_text: str) -> str:
    """A schema's default (often a string) as Python text."""
    if default == "null":
        return "None"
    if type_text == "bool":
        return str(str(default).lower() == "true")
    if type_text == "string":
        return json.dumps(default)
    if type_text == "float64":
        return repr(float(default))
    return str(int(str(default), 0))


# -- the whole package


@dataclass(frozen=True)
class Api:
    """One row of the API table."""

    key: int
    name: str
    module: str
    schema: dict[str, Any]
    listeners: tuple[str, ...]
    is_unstable: bool


def read_messages(schema_dir: Path) -> Iterator[tuple[Api, str]]:
    """Every API with the text of its module."""
    new_dir, old_dir = schema_dir / "4.4" / "clients", schema_dir / "3.9-clients"
    found = []
    for path in new_dir.glob("*Request.json"):
        old_request = old_dir / path.name
        # Early-access versions of the old release are not taken over.
        is_known = old_request.exists() and not load(old_request).get("latestVersionUnstable")
        pair = []
        for kind in ("Request", "Response"):
            file = path.name.replace("Request.json", f"{kind}.json")
            pair.append(merged(load(new_dir / file), load(old_dir / file) if is_known else None))
        found.append((pair, load(path)))
    for pair, newest in sorted(found, key=lambda one: int(one[0][0]["apiKey"])):
        request = pair[0]
        name = request["name"].removesuffix("Request")
        listeners = tuple(newest.get("listeners", ()))
        api = Api(
            key=request["apiKey"],
            name=name,
            module=snake(name),
            schema=request,
            listeners=listeners,
            is_unstable=bool(newest.get("latestVersionUnstable")),
        )
        served = f"on {' and '.join(listeners)} listeners" if listeners else "by nobody since 4.0"
        flexible = request["flexibleVersions"]
        compact = "never flexible" if flexible == "none" else f"flexible {flexible}"
        doc = (
            f"{name}: API key {api.key}, {version_words(request['validVersions'])}, {compact};\n"
            f"served {served}."
        )
        yield api, ModuleWriter(pair).text(doc)


def read_records(schema_dir: Path) -> Iterator[tuple[str, str, list[dict[str, Any]], str]]:
    """Every record type: (family, module, schemas, text)."""
    for family, place in FAMILIES.items():
        groups: dict[str, list[dict[str, Any]]] = {}
        for path in sorted((schema_dir / "4.4" / family).glob("*.json")):
            if path.name.endswith(("Request.json", "Response.json", "Header.json")):
                continue
            schema = load(path)
            name = schema["name"]
            if schema["type"].startswith("coordinator-"):
                name = name.removesuffix("Key").removesuffix("Value")
            groups.setdefault(snake(name), []).append(schema)
        for module, schemas in groups.items():
            parts = [
                f"{each['name']} ({version_words(each['validVersions'])})"
                for each in sorted(schemas, key=lambda one: one["name"])
            ]
            kind = f"type {schemas[0]['apiKey']} of" if "apiKey" in schemas[0] else "kept in"
            doc = ",\n".join(parts) + f":\n{kind} {place}."
            yield family, module, schemas, ModuleWriter(schemas).text(doc)


def api_table_text(apis: list[Api]) -> str:
    lines = [
        '"""Every API of the protocol: number, versions, listeners.',
        "",
        SOURCE_NOTE.replace("Field table", "Table"),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "from typing import NamedTuple",
        "",
        "",
        "class ApiKey(IntEnum):",
        '    """The number by which a request names its API."""',
        "",
    ]
    lines += [f"    {each.module.upper()} = {each.key}" for each in apis]
    lines += [
        "",
        "",
        "class ApiRow(NamedTuple):",
        '    """What is fixed about an API."""',
        "",
        "    name: str",
        "    module: str",
        "    first_version: int",
        "    last_version: int",
        "    # First version with tagged fields; None if there is none.",
        "    flexible_from: int | None",
        "    # Kinds of listener that serve it in Kafka 4.4; empty for what 4.0 dropped.",
        "    listeners: tuple[str, ...]",
        "    # Whether Kafka does not advertise the last version by default.",
        "    last_is_unstable: bool",
        "",
        "",
        "API_ROWS: dict[int, ApiRow] = {",
    ]
    for each in apis:
        limits, flexible = span(each.schema["validVersions"]), span(each.schema["flexibleVersions"])
        assert limits is not None
        lines.append(
            f'    {each.key}: ApiRow("{each.name}", "{each.module}", {limits[0]}, {limits[1]}, '
            f"{flexible[0] if flexible else None}, {tuple(each.listeners)!r}, {each.is_unstable}),"
        )
    return "\n".join([*lines, "}", ""])


def record_table_text(rows: list[tuple[str, str, list[dict[str, Any]]]]) -> str:
    lines = [
        '"""Which class codes which record type, for each kind of log.',
        "",
        SOURCE_NOTE.replace("Field table", "Table"),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "# Kind of log -> record type -> (module in `records`, names of its classes: key, value).",
        "RECORD_ROWS: dict[str, dict[int, tuple[str, tuple[str, ...]]]] = {",
    ]
    for family in FAMILIES:
        mine = [row for row in rows if row[0] == family and "apiKey" in row[2][0]]
        if not mine:
            continue
        lines.append(f'    "{family}": {{')
        for _, module, schemas in sorted(mine, key=lambda row: int(row[2][0]["apiKey"])):
            names = tuple(sorted(each["name"] for each in schemas))
            lines.append(f'        {schemas[0]["apiKey"]}: ("{module}", {names!r}),')
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def generate(schema_dir: Path) -> dict[str, str]:
    """All output files, unformatted: path inside the package -> text."""
    files = {}
    apis = []
    for api, text in read_messages(schema_dir):
        apis.append(api)
        files[f"messages/{api.module}.py"] = text
    rows = []
    for family, module, schemas, text in read_records(schema_dir):
        rows.append((family, module, schemas))
        assert f"records/{module}.py" not in files
        files[f"records/{module}.py"] = text
    files["api_table.py"] = api_table_text(apis)
    files["record_table.py"] = record_table_text(rows)
    return files


def main() -> None:
    """Write the files and have ruff format them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = ROOT.parent / "shared" / "kafka-schemas"
    parser.add_argument("schema_dir", nargs="?", type=Path, default=default)
    parser.add_argument("--output", type=Path, default=ROOT / "src" / "barnabas" / "protocol")
    options = parser.parse_args()
    files = generate(options.schema_dir)
    for folder in ("messages", "records"):
        (options.output / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (options.output / name).write_text(text)
    paths = [str(options.output / name) for name in files]
    config = ["--config", str(ROOT / "pyproject.toml")]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "-q", *config, *paths], check=True)
    fix = ["check", "-q", "--fix", "--select", "I,RUF022", *config]
    subprocess.run([*ruff, *fix, *paths], check=True)
    subprocess.run([*ruff, "format", "-q", *config, *paths], check=True)
    print(f"{len(files)} files written below {options.output}")


if __name__ == "__main__":
    main()
