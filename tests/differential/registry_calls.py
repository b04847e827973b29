"""Calls of a schema registry's REST interface, with the responses of Confluent's registry.

Each conversation begins with new subjects. The status, the error code and the body of a response
are those of Confluent's Schema Registry 7 and 8: its API reference, and the checks in its resource
classes. `known_registry_differences` says where Apicurio Registry differs.

In paths and bodies, $s and $t are subjects, $p is their common prefix, $c is a context, and $n is a
name for schemas that no other conversation has. The id of a schema is an `Id`, which has to be the
same wherever it occurs in a conversation; @a in a path stands for the id with the name a.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

API_REFERENCE = "https://docs.confluent.io/platform/current/schema-registry/develop/api.html"


@dataclass(frozen=True)
class Id:
    """An id of a schema; the first response decides its value."""

    name: str = "id"


@dataclass(frozen=True)
class Call:
    """A request and the response to it.

    Attributes:
        request: Method and path.
        status: The status of the response.
        answer: Its error code if it is an error; else its body, in which ... stands for any value.
        body: The body of the request: JSON, or bytes.
        headers: Headers besides the usual content type.
    """

    request: str
    status: int = 200
    answer: Any = ...
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conversation:
    """Calls in this order; those of `cleanup` follow even if one of the others fails."""

    name: str
    calls: tuple[Call, ...]
    cleanup: tuple[Call, ...] = ()


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


PLAIN = record("$n", {"name": "a", "type": "string"})
# The same schema with other white space.
SPACED = PLAIN.replace(":", " :  ")
WIDER = record("$n", {"name": "a", "type": "string"}, {"name": "b", "type": "int", "default": 0})
BROKEN = record("$n", {"name": "a", "type": "string"}, {"name": "b", "type": "int"})
AIRPORT = record("Airport", {"name": "code", "type": "string"})
FLIGHT = record("Flight", {"name": "to", "type": "Airport"})
REFERENCE = {"name": "Airport", "subject": "$s", "version": 1}
LARGE_ID = 2_000_000_000
A = Id("a")
B = Id("b")


def register(subject: str, text: str, number: Id, **given: Any) -> Call:
    """Return a successful registration."""
    body = {"schema": text, **given}
    return Call(f"POST /subjects/{subject}/versions", answer={"id": number}, body=body)


UNKNOWN = Conversation(
    "unknown names",
    (
        Call("GET /subjects/$s/versions", 404, 40401),
        Call("GET /subjects/$s/versions/1", 404, 40401),
        Call("GET /subjects/$s/versions/latest", 404, 40401),
        Call("GET /subjects/$s/versions/1/schema", 404, 40401),
        Call("GET /subjects/$s/versions/1/referencedby", 404, 40401),
        Call(f"GET /schemas/ids/{LARGE_ID}", 404, 40403),
        Call(f"GET /schemas/ids/{LARGE_ID}/schema", 404, 40403),
        Call(f"GET /schemas/ids/{LARGE_ID}/subjects", 404, 40403),
        Call(f"GET /schemas/ids/{LARGE_ID}/versions", 404, 40403),
        Call("DELETE /subjects/$s", 404, 40401),
        Call("DELETE /subjects/$s?permanent=true", 404, 40401),
        Call("DELETE /subjects/$s/versions/1", 404, 40401),
        Call("POST /subjects/$s", 404, 40401, {"schema": PLAIN}),
        Call("GET /config/$s", 404, 40408),
        Call("GET /mode/$s", 404, 40409),
        Call("DELETE /config/$s", 404, 40401),
        Call("DELETE /mode/$s", 404, 40401),
        Call("GET /nothing", 404, 404),
        Call("GET /schemas/ids/none", 404, 404),
    ),
)

VERSIONS = Conversation(
    "numbers of versions",
    (
        register("$s", PLAIN, A),
        *(
            Call(f"GET /subjects/$s/versions/{version}", 422, 42202)
            for version in ("0", "-2", "first", "2147483648", "1.0")
        ),
        *(
            Call(
                f"GET /subjects/$s/versions/{version}",
                answer={"subject": "$s", "version": 1, "id": A, "schema": ...},
            )
            for version in ("1", "latest", "-1")
        ),
        Call("GET /subjects/$s/versions/9", 404, 40402),
        Call("GET /subjects/$s/versions/9/schema", 404, 40402),
        Call("DELETE /subjects/$s/versions/0", 422, 42202),
        Call("DELETE /subjects/$s/versions/9", 404, 40402),
        Call("POST /compatibility/subjects/$s/versions/0", 422, 42202, {"schema": PLAIN}),
        Call("POST /compatibility/subjects/$s/versions/9", 404, 40402, {"schema": PLAIN}),
    ),
)

REGISTRATION = Conversation(
    "registration and lookup",
    (
        register("$s", PLAIN, A),
        register("$s", PLAIN, A),
        register("$s", SPACED, A),
        register("$t", PLAIN, A),
        Call("GET /subjects/$s/versions", answer=[1]),
        register("$s", WIDER, B),
        Call("GET /subjects/$s/versions", answer=[1, 2]),
        Call("GET /subjects/$s/versions/1/schema", answer=json.loads(PLAIN)),
        Call("GET /subjects/$s/versions/1/referencedby", answer=[]),
        Call(
            "POST /subjects/$s",
            answer={"subject": "$s", "version": 1, "id": A, "schema": ...},
            body={"schema": SPACED},
        ),
        Call("POST /subjects/$t", 404, 40403, {"schema": WIDER}),
    ),
)
IDS = Conversation(
    "ids",
    (
        register("$s", PLAIN, A),
        register("$t", PLAIN, A),
        Call("GET /schemas/ids/@a", answer={"schema": ...}),
        Call("GET /schemas/ids/@a/schema", answer=json.loads(PLAIN)),
        Call("GET /schemas/ids/@a/subjects", answer={"$s", "$t"}),
        Call(
            "GET /schemas/ids/@a/versions",
            answer=[{"subject": "$s", "version": 1}, {"subject": "$t", "version": 1}],
        ),
        Call("GET /schemas/ids/@a?subject=$s", answer={"schema": ...}),
        Call("GET /schemas/ids/@a?fetchMaxId=true", answer={"schema": ..., "maxId": ...}),
        Call("DELETE /subjects/$s", answer=[1]),
        Call("GET /schemas/ids/@a", answer={"schema": ...}),
        Call("GET /schemas/ids/@a/subjects", answer={"$t"}),
        Call("GET /schemas/ids/@a/subjects?deleted=true", answer={"$s", "$t"}),
    ),
)

DELETED_SUBJECT = Conversation(
    "deletion of a subject",
    (
        register("$s", PLAIN, A),
        register("$s", WIDER, B),
        Call("DELETE /subjects/$s?permanent=true", 404, 40405),
        Call("DELETE /subjects/$s", answer=[1, 2]),
        Call("DELETE /subjects/$s", 404, 40404),
        Call("GET /subjects/$s/versions", 404, 40401),
        Call("GET /subjects/$s/versions/1", 404, 40401),
        Call("GET /subjects/$s/versions?deleted=true", answer=[1, 2]),
        Call(
            "GET /subjects/$s/versions/1?deleted=true",
            answer={"subject": "$s", "version": 1, "id": A, "schema": ...},
        ),
        Call("GET /subjects?subjectPrefix=$s", answer=[]),
        Call("GET /subjects?subjectPrefix=$s&deleted=true", answer=["$s"]),
        Call("POST /subjects/$s", 404, 40401, {"schema": PLAIN}),
        Call(
            "POST /subjects/$s?deleted=true",
            answer={"subject": "$s", "version": 1, "id": A, "schema": ...},
            body={"schema": PLAIN},
        ),
        register("$s", PLAIN, A),
        # The new version replaces the deleted version with the same id.
        Call("GET /subjects/$s/versions", answer=[3]),
        Call("GET /subjects/$s/versions?deleted=true", answer=[2, 3]),
        Call("DELETE /subjects/$s", answer=[3]),
        Call("DELETE /subjects/$s?permanent=true", answer=[2, 3]),
        Call("GET /subjects/$s/versions?deleted=true", 404, 40401),
        Call("DELETE /subjects/$s", 404, 40401),
    ),
)
DELETED_VERSION = Conversation(
    "deletion of a version",
    (
        register("$s", PLAIN, A),
        register("$s", WIDER, B),
        Call("DELETE /subjects/$s/versions/1?permanent=true", 404, 40407),
        Call("DELETE /subjects/$s/versions/1", answer=1),
        Call("DELETE /subjects/$s/versions/1", 404, 40406),
        Call("GET /subjects/$s/versions", answer=[2]),
        Call("GET /subjects/$s/versions?deleted=true", answer=[1, 2]),
        Call("GET /subjects/$s/versions?deletedOnly=true", answer=[1]),
        Call("GET /subjects/$s/versions/1", 404, 40402),
        Call("POST /subjects/$s", 404, 40403, {"schema": PLAIN}),
        Call("DELETE /subjects/$s/versions/1?permanent=true", answer=1),
        Call("GET /subjects/$s/versions?deleted=true", answer=[2]),
        Call("DELETE /subjects/$s/versions/latest", answer=2),
        Call("GET /subjects/$s/versions", 404, 40401),
    ),
)

REFERRING = {"subject": "$t", "version": 1, "id": B, "schema": ..., "references": [REFERENCE]}
REFERENCES = Conversation(
    "references",
    (
        register("$s", AIRPORT, A),
        Call("POST /subjects/$t/versions", 422, 42201, {"schema": FLIGHT}),
        register("$t", FLIGHT, B, references=[REFERENCE]),
        Call(
            "GET /subjects/$t/versions/1",
            answer=REFERRING,
        ),
        Call("GET /schemas/ids/@b", answer={"schema": ..., "references": [REFERENCE]}),
        Call("GET /subjects/$s/versions/1/referencedby", answer=[B]),
        Call("DELETE /subjects/$s/versions/1", 422, 42206),
        Call("DELETE /subjects/$s", 422, 42206),
        Call(
            "POST /subjects/$t/versions",
            422,
            42201,
            {"schema": FLIGHT, "references": [{**REFERENCE, "version": 7}]},
        ),
        Call(
            "POST /subjects/$t/versions",
            422,
            42201,
            {"schema": FLIGHT, "references": [{**REFERENCE, "subject": "$p-none"}]},
        ),
        Call(
            "POST /subjects/$t",
            answer=REFERRING,
            body={"schema": FLIGHT, "references": [REFERENCE]},
        ),
        Call("DELETE /subjects/$t", answer=[1]),
        Call("GET /subjects/$s/versions/1/referencedby", answer=[]),
        Call("DELETE /subjects/$s", answer=[1]),
    ),
)

CHECK = "POST /compatibility/subjects/$s/versions"
COMPATIBILITY = Conversation(
    "compatibility",
    (
        Call(f"{CHECK}/latest", answer={"is_compatible": True}, body={"schema": PLAIN}),
        Call(CHECK, answer={"is_compatible": True}, body={"schema": PLAIN}),
        Call(f"{CHECK}/1", 404, 40402, {"schema": PLAIN}),
        register("$s", PLAIN, A),
        Call("GET /config/$s?defaultToGlobal=true", answer={"compatibilityLevel": ...}),
        Call("PUT /config/$s", 422, 42203, {"compatibility": "SIDEWAYS"}),
        Call(
            "PUT /config/$s",
            answer={"compatibility": "BACKWARD"},
            body={"compatibility": "BACKWARD"},
        ),
        Call("GET /config/$s", answer={"compatibilityLevel": "BACKWARD"}),
        Call("POST /subjects/$s/versions", 409, 409, {"schema": BROKEN}),
        Call(f"{CHECK}/latest", answer={"is_compatible": False}, body={"schema": BROKEN}),
        Call(
            f"{CHECK}/latest?verbose=true",
            answer={"is_compatible": False, "messages": ...},
            body={"schema": BROKEN},
        ),
        Call(f"{CHECK}/latest", 422, 42201, {"schema": "no schema"}),
        Call(f"{CHECK}/1", answer={"is_compatible": True}, body={"schema": WIDER}),
        Call("PUT /config/$s", answer={"compatibility": "NONE"}, body={"compatibility": "NONE"}),
        register("$s", BROKEN, B),
        Call("DELETE /config/$s", answer={"compatibilityLevel": "NONE"}),
        Call("GET /config/$s", 404, 40408),
        Call("DELETE /config/$s", 404, 40401),
        Call("PUT /config/$s", answer={"compatibility": "NONE"}, body={"compatibility": "NONE"}),
        Call("DELETE /subjects/$s", answer=[1, 2]),
        Call("GET /config/$s", 404, 40408),
    ),
)
GLOBAL_LEVEL = Conversation(
    "level of the registry",
    (
        Call("GET /config", answer={"compatibilityLevel": "BACKWARD"}),
        Call("PUT /config", 422, 42203, {"compatibility": "SIDEWAYS"}),
        Call("PUT /config", answer={"compatibility": "FULL"}, body={"compatibility": "FULL"}),
        Call("GET /config", answer={"compatibilityLevel": "FULL"}),
        Call("GET /config/$s?defaultToGlobal=true", answer={"compatibilityLevel": "FULL"}),
        Call("DELETE /config", answer={"compatibilityLevel": "FULL"}),
        Call("GET /config", answer={"compatibilityLevel": "BACKWARD"}),
    ),
    (Call("DELETE /config"),),
)

MODES = Conversation(
    "modes",
    (
        register("$s", PLAIN, A),
        Call("GET /mode", answer={"mode": "READWRITE"}),
        Call("PUT /mode/$s", 422, 42204, {"mode": "CLOSED"}),
        Call("PUT /mode/$s", answer={"mode": "READONLY"}, body={"mode": "READONLY"}),
        Call("GET /mode/$s", answer={"mode": "READONLY"}),
        Call("POST /subjects/$s/versions", 422, 42205, {"schema": WIDER}),
        Call("DELETE /subjects/$s", 422, 42205),
        Call("DELETE /subjects/$s/versions/1", 422, 42205),
        register("$s", PLAIN, A),
        Call("GET /subjects/$s/versions", answer=[1]),
        Call("DELETE /mode/$s", answer={"mode": "READONLY"}),
        Call("GET /mode/$s", 404, 40409),
        Call("GET /mode/$s?defaultToGlobal=true", answer={"mode": "READWRITE"}),
        Call("PUT /mode/$s", 422, 42205, {"mode": "IMPORT"}),
        Call("PUT /mode/$s?force=true", answer={"mode": "IMPORT"}, body={"mode": "IMPORT"}),
        Call("DELETE /mode/$s", answer={"mode": "IMPORT"}),
    ),
    (Call("DELETE /mode/$s"),),
)
IMPORT = Conversation(
    "import of ids",
    (
        Call("POST /subjects/$s/versions", 422, 42205, {"schema": PLAIN, "id": 77_000_001}),
        Call("PUT /mode/$s", answer={"mode": "IMPORT"}, body={"mode": "IMPORT"}),
        Call(
            "POST /subjects/$s/versions",
            answer={"id": 77_000_002},
            body={"schema": PLAIN, "id": 77_000_002, "version": 5},
        ),
        Call("GET /subjects/$s/versions", answer=[5]),
        Call("DELETE /mode/$s", answer={"mode": "IMPORT"}),
    ),
    (Call("DELETE /mode/$s"),),
)
GLOBAL_MODE = Conversation(
    "mode of the registry",
    (
        register("$s", PLAIN, A),
        Call("PUT /mode", 422, 42204, {"mode": "CLOSED"}),
        Call("PUT /mode", answer={"mode": "READONLY"}, body={"mode": "READONLY"}),
        Call("POST /subjects/$s/versions", 422, 42205, {"schema": WIDER}),
        Call("GET /mode/$s?defaultToGlobal=true", answer={"mode": "READONLY"}),
        Call("PUT /mode", answer={"mode": "READWRITE"}, body={"mode": "READWRITE"}),
        register("$s", WIDER, B),
    ),
    (Call("PUT /mode", body={"mode": "READWRITE"}),),
)

BODIES = Conversation(
    "bodies that are wrong",
    (
        Call("POST /subjects/$s/versions", 400, 400, b"{"),
        Call("POST /subjects/$s/versions", 400, 400, b"[]"),
        Call("POST /subjects/$s/versions", 400, 400, {"schema": {"type": "string"}}),
        Call("POST /subjects/$s/versions", 400, 400, {"schema": PLAIN, "references": "Airport"}),
        Call("POST /subjects/$s/versions", 422, 42201, {"schema": ""}),
        Call("POST /subjects/$s/versions", 422, 42201, {}),
        Call("POST /subjects/$s/versions", 422, 42201, {"schema": "{"}),
        Call("POST /subjects/$s/versions", 422, 42201, {"schema": '{"type": "unknown"}'}),
        Call("POST /subjects/$s/versions", 422, 42201, {"schema": PLAIN, "schemaType": "XML"}),
        Call("POST /subjects/$s", 422, 42201, {"schema": "{"}),
        Call("PUT /config/$s", 400, 400, b"BACKWARD"),
        Call("PUT /mode/$s", 400, 400, b"READONLY"),
        Call("GET /subjects?subjectPrefix=$s", answer=[]),
        Call(
            "POST /subjects/$s/versions",
            answer={"id": ...},
            body={"schema": PLAIN, "comment": "unknown fields are ignored"},
        ),
    ),
)
MEDIA = Conversation(
    "media types",
    (
        *(
            Call(
                "POST /subjects/$s/versions",
                answer={"id": A},
                body={"schema": PLAIN},
                headers={"Content-Type": media},
            )
            for media in (
                "application/json",
                "application/json; charset=utf-8",
                "application/vnd.schemaregistry+json",
                "application/octet-stream",
            )
        ),
        Call(
            "POST /subjects/$s/versions",
            415,
            415,
            {"schema": PLAIN},
            {"Content-Type": "text/plain"},
        ),
        Call("GET /subjects/$s/versions", answer=[1], headers={"Accept": "application/json"}),
        Call("GET /subjects/$s/versions", answer=[1], headers={"Accept": "*/*"}),
        Call("GET /subjects/$s/versions", 406, 406, headers={"Accept": "text/html"}),
        Call("PATCH /subjects/$s/versions", 405, 405),
    ),
)

PAGES = Conversation(
    "lists and pages",
    (
        register("$s", PLAIN, A),
        register("$s", WIDER, B),
        register("$t", PLAIN, A),
        Call("GET /subjects?subjectPrefix=$p", answer=["$s", "$t"]),
        Call("GET /subjects?subjectPrefix=$p&offset=1&limit=1", answer=["$t"]),
        Call("GET /subjects?subjectPrefix=$p&limit=1", answer=["$s"]),
        Call("GET /subjects?subjectPrefix=$p&offset=7", answer=[]),
        Call("GET /subjects/$s/versions?offset=1&limit=1", answer=[2]),
        Call(
            "GET /schemas?subjectPrefix=$p&latestOnly=true",
            answer=[
                {"subject": "$s", "version": 2, "id": B, "schema": ...},
                {"subject": "$t", "version": 1, "id": A, "schema": ...},
            ],
        ),
        Call(
            "GET /schemas?subjectPrefix=$p&offset=1&limit=1",
            answer=[{"subject": "$s", "version": 2, "id": B, "schema": ...}],
        ),
        Call("DELETE /subjects/$t", answer=[1]),
        Call("GET /subjects?subjectPrefix=$p", answer=["$s"]),
        Call("GET /subjects?subjectPrefix=$p&deleted=true", answer=["$s", "$t"]),
        Call("GET /subjects?subjectPrefix=$p&deletedOnly=true", answer=["$t"]),
        Call("GET /schemas?subjectPrefix=$t", answer=[]),
        Call(
            "GET /schemas?subjectPrefix=$t&deleted=true",
            answer=[{"subject": "$t", "version": 1, "id": A, "schema": ...}],
        ),
    ),
)

OTHER_ORDER = json.dumps(
    {"fields": [{"type": "string", "name": "a"}], "name": "$n", "type": "record"}
)
NORMALIZE = Conversation(
    "normalize",
    (
        register("$s", PLAIN, A),
        Call(
            "POST /subjects/$s?normalize=true",
            answer={"subject": "$s", "version": 1, "id": A, "schema": ...},
            body={"schema": OTHER_ORDER},
        ),
        Call(
            "POST /subjects/$s/versions?normalize=true",
            answer={"id": A},
            body={"schema": OTHER_ORDER},
        ),
        Call("GET /subjects/$s/versions", answer=[1]),
    ),
)

CONTEXTS = Conversation(
    "contexts",
    (
        register("$s", PLAIN, A),
        register(":.$c:$s", WIDER, B),
        Call("GET /contexts", answer=...),
        Call("GET /subjects/:.$c:$s/versions", answer=[1]),
        Call(
            "GET /subjects/:.$c:$s/versions/1",
            answer={"subject": ":.$c:$s", "version": 1, "id": B, "schema": ...},
        ),
        Call("GET /subjects/$s/versions", answer=[1]),
        Call("GET /subjects?subjectPrefix=:.$c:", answer=[":.$c:$s"]),
        Call("GET /subjects?subjectPrefix=:*:$s", answer={":.$c:$s", "$s"}),
        Call("PUT /config/:.$c:", answer={"compatibility": "NONE"}, body={"compatibility": "NONE"}),
        Call("GET /config/:.$c:$s?defaultToGlobal=true", answer={"compatibilityLevel": "NONE"}),
        Call("DELETE /subjects/:.$c:$s", answer=[1]),
        Call("GET /subjects/$s/versions", answer=[1]),
    ),
)

PLANE = json.dumps({"title": "$n", "type": "object", "properties": {}})
PROTO = 'syntax = "proto3";\npackage $n;\n\nmessage Plane {\n  string tail = 1;\n}\n'
TYPES = Conversation(
    "types",
    (
        register("$s", PLANE, A, schemaType="JSON"),
        register("$t", PROTO, B, schemaType="PROTOBUF"),
        register("$t", PROTO.replace("\n  ", " "), B, schemaType="PROTOBUF"),
        Call("GET /schemas/ids/@a", answer={"schemaType": "JSON", "schema": ...}),
        Call("GET /schemas/ids/@b", answer={"schemaType": "PROTOBUF", "schema": PROTO}),
        Call(
            "GET /subjects/$s/versions/1",
            answer={
                "subject": "$s",
                "version": 1,
                "id": A,
                "schemaType": "JSON",
                "schema": ...,
            },
        ),
        Call("GET /subjects/$s/versions/1/schema", answer=json.loads(PLANE)),
        Call("POST /subjects/$s/versions", 422, 42201, {"schema": "[1", "schemaType": "JSON"}),
        Call("POST /subjects/$t/versions", 422, 42201, {"schema": "x", "schemaType": "PROTOBUF"}),
        Call("POST /subjects/$s/versions", 409, 409, {"schema": PLAIN}),
    ),
)

ROOT = Conversation(
    "root and metadata",
    (
        Call("GET /", answer={}),
        Call("GET /schemas/types", answer={"AVRO", "JSON", "PROTOBUF"}),
        Call("GET /v1/metadata/id", answer={"scope": ..., "id": ...}),
        Call("GET /v1/metadata/version", answer={"version": ..., "commitId": ...}),
    ),
)

CONVERSATIONS = (
    UNKNOWN,
    VERSIONS,
    REGISTRATION,
    IDS,
    DELETED_SUBJECT,
    DELETED_VERSION,
    REFERENCES,
    COMPATIBILITY,
    GLOBAL_LEVEL,
    MODES,
    IMPORT,
    GLOBAL_MODE,
    BODIES,
    MEDIA,
    PAGES,
    NORMALIZE,
    CONTEXTS,
    TYPES,
    ROOT,
)
