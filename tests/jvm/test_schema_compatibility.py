"""Drawn pairs of schemas: our registry's rules beside those of Apicurio Registry.

Both have to accept the same schemas. Where the rules differ, ours are Confluent's:
docs/lab/schema-compatibility.md has the reason of each difference.
"""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from barnabas.registry.schemas import InvalidSchemaError, ParsedSchema, parse
from jvm.drawn_schemas import SchemaPair, drawn_pairs
from selection import nightly_unless

DOCUMENT = Path(__file__).parents[2] / "docs" / "lab" / "schema-compatibility.md"
# Seeds and numbers of pairs.
SHORT = (1, 120)
LONG = (2, 2000)

# What Apicurio refuses, and Confluent's registry accepts.
STRICTER = {
    "JSON": {
        "Subschema type changed": "a type becomes a list of types that has it",
        "Combined type subschema not compatible": "a type becomes a list of types that has it",
        "A new required property was added": "a new required property has a default",
        "Object type property schemas narrowed": "a new property was covered before",
        "Object type property schemas changed": "a new property was covered before",
        "Combined type criterion narrowed": "a combined type of one schema changes its keyword",
        "Combined type criterion changed": "a combined type of one schema changes its keyword",
        "Combined type any of size decreased": "equal alternatives are merged",
        "Combined type one of size decreased": "equal alternatives are merged",
    },
    "PROTOBUF": {
        "fields removed without reservation": "a field or value is removed without `reserved`",
        "Field name changed": "a field or value gets another name",
        "Field label changed": "a field becomes repeated, or single",
        "Field type changed": "a field gets another type of the same bytes",
    },
}
# What Apicurio accepts, and Confluent's registry refuses.
MILDER = {
    "JSON": {
        "PRODUCT_TYPE_EXTENDED": "`allOf` gets more distinct schemas",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "no pattern covers a removed property",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
            "a new property accepts less than what covered it"
        ),
        "MAXIMUM_ADDED": "a bound is added beside an exclusive one",
        "MINIMUM_ADDED": "a bound is added beside an exclusive one",
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "a combined type changes schemas and keyword",
    },
    "PROTOBUF": {
        "PACKAGE_CHANGED": "the package changes",
        "FIELD_MOVED_TO_EXISTING_ONEOF": "a field moves into an older oneof",
    },
}


# How long a response may take on a busy machine (s).
_TIMEOUT_S = 60


class Apicurio:
    """Registers schemas in subjects of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path
        self._prefix = uuid4().hex

    def register(self, subject: str, kind: str, text: str) -> tuple[int, str]:
        """Return the status, and the message of an error."""
        body = {"schema": text, "schemaType": kind}
        return self._request("POST", f"/subjects/{self._prefix}-{subject}/versions", body)

    def check(self, subject: str, level: str) -> None:
        """Set the level of compatibility of a subject."""
        path = f"/config/{self._prefix}-{subject}"
        status, message = self._request("PUT", path, {"compatibility": level})
        assert status == 200, message

    def _request(self, method: str, path: str, body: Any) -> tuple[int, str]:
        try:
            response = self._send(method, path, body)
        except TimeoutError:
            # Apicurio has forgotten a request, which is seldom. A second one has the same result.
            self._connection.close()
            response = self._send(method, path, body)
        content = json.loads(response.read() or b"{}")
        return response.status, str(content.get("message", ""))

    def _send(self, method: str, path: str, body: Any) -> HTTPResponse:
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, self._path + path, json.dumps(body), headers)
        return self._connection.getresponse()


def parsed(kind: str, text: str) -> ParsedSchema | None:
    try:
        return parse(kind, text)
    except InvalidSchemaError:
        return None


def unexplained(pair: SchemaPair, refusal: str | None, found: set[str]) -> str:
    """Return why the results of a pair differ; "" if they are the same, or differ for a reason.

    Args:
        pair: The pair.
        refusal: Apicurio's message; None if the schemas are compatible.
        found: The kinds of our differences.
    """
    if (refusal is not None) == bool(found):
        return ""
    if refusal is None:
        reasons = MILDER.get(pair.kind, {}).keys()
        return "" if found & reasons else f"only ours: {found}"
    [listed] = re.findall(r"list of diff types: \[(.*)\]", refusal, re.DOTALL) or [refusal]
    known = "|".join(STRICTER.get(pair.kind, {"none": ""}))
    # A message ends with a path; parts of it may contain commas.
    rest = re.sub(rf"[^,/]*(?:{known})[^/]*/\S*(, )?", "", listed + ", ")
    return f"only Apicurio's: {rest}" if rest.strip(", ") else ""


@pytest.mark.parametrize("drawn", nightly_unless(lambda case: case == SHORT, [SHORT, LONG]))
def test_drawn_pairs_have_the_same_result_or_a_known_difference(
    apicurio: str, drawn: tuple[int, int]
) -> None:
    seed, count = drawn
    peer = Apicurio(apicurio)
    wrong: list[tuple[str, SchemaPair]] = []
    both = {True: 0, False: 0}
    for index, pair in enumerate(drawn_pairs(seed, count)):
        writer, reader = parsed(pair.kind, pair.writer), parsed(pair.kind, pair.reader)
        status, message = peer.register(str(index), pair.kind, pair.writer)
        if (status == 200) != (writer is not None):
            wrong.append((f"validity: {message}", pair))
        if status != 200 or writer is None:
            continue
        peer.check(str(index), "BACKWARD")
        status, message = peer.register(str(index), pair.kind, pair.reader)
        if (status in (200, 409)) != (reader is not None):
            wrong.append((f"validity: {message}", pair))
        elif reader is not None:
            found = {each.kind for each in reader.differences(writer)}
            reason = unexplained(pair, message if status == 409 else None, found)
            if reason:
                wrong.append((reason, pair))
            both[bool(found)] += 1
    assert not wrong[:3]
    assert min(both.values()) > count // 10


def test_the_document_has_the_reason_of_each_difference() -> None:
    text = DOCUMENT.read_text()
    for table in (STRICTER, MILDER):
        for reasons in table.values():
            assert [each for each in reasons.values() if f"| {each} |" not in text] == []
