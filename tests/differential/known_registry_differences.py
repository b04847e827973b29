"""Where Apicurio Registry 3.3 responds differently from Confluent's registry, and why.

Barnabas follows Confluent's registry in all of these calls. Each reason has the conversations of
`registry_calls` and the requests in which the difference shows.
"""

from __future__ import annotations

from differential import registry_calls as calls
from differential.registry_calls import Conversation

_CHECK = "POST /compatibility/subjects/$s/versions"
_REGISTER = "POST /subjects/$s/versions"

# Reason -> pairs of a conversation and a request.
DIFFERENCES: dict[str, tuple[tuple[Conversation, str], ...]] = {
    "Subjects have no level of their own for the codes 40408 and 40401: the response is 40401 for "
    "unknown subjects, and else the level NONE.": (
        (calls.UNKNOWN, "GET /config/$s"),
        (calls.COMPATIBILITY, "GET /config/$s"),
        (calls.COMPATIBILITY, "DELETE /config/$s"),
        (calls.GLOBAL_LEVEL, "GET /config/$s?defaultToGlobal=true"),
    ),
    "The level of a new registry is NONE instead of BACKWARD.": (
        (calls.GLOBAL_LEVEL, "GET /config"),
    ),
    "The response to a change of a level also says whether schemas are normalized.": (
        (calls.COMPATIBILITY, "PUT /config/$s"),
        (calls.GLOBAL_LEVEL, "PUT /config"),
        (calls.CONTEXTS, "PUT /config/:.$c:"),
    ),
    "Modes are stored without an effect; a subject without a mode has READWRITE. Ids and versions "
    "that a client gives are ignored.": (
        (calls.UNKNOWN, "GET /mode/$s"),
        (calls.UNKNOWN, "DELETE /mode/$s"),
        (calls.MODES, _REGISTER),
        (calls.MODES, "DELETE /subjects/$s"),
        (calls.MODES, "DELETE /subjects/$s/versions/1"),
        (calls.MODES, "GET /subjects/$s/versions"),
        (calls.MODES, "GET /mode/$s"),
        (calls.MODES, "PUT /mode/$s"),
        (calls.IMPORT, _REGISTER),
        (calls.IMPORT, "GET /subjects/$s/versions"),
        (calls.GLOBAL_MODE, _REGISTER),
    ),
    "The code of an invalid mode is that of an invalid schema, 42201 instead of 42204.": (
        (calls.MODES, "PUT /mode/$s"),
        (calls.GLOBAL_MODE, "PUT /mode"),
    ),
    "A number that is no version is an unknown version, 40402 or 40401 instead of 42202.": (
        (calls.VERSIONS, "GET /subjects/$s/versions/0"),
        (calls.VERSIONS, "GET /subjects/$s/versions/-2"),
        (calls.VERSIONS, "GET /subjects/$s/versions/first"),
        (calls.VERSIONS, "GET /subjects/$s/versions/2147483648"),
        (calls.VERSIONS, "GET /subjects/$s/versions/1.0"),
        (calls.VERSIONS, "DELETE /subjects/$s/versions/0"),
        (calls.VERSIONS, f"{_CHECK}/0"),
    ),
    "Errors of its web framework have no error code: unknown paths, wrong bodies, media types.": (
        (calls.UNKNOWN, "GET /nothing"),
        (calls.UNKNOWN, "GET /schemas/ids/none"),
        (calls.BODIES, _REGISTER),
        (calls.BODIES, "PUT /config/$s"),
        (calls.BODIES, "PUT /mode/$s"),
        (calls.MEDIA, _REGISTER),
        (calls.MEDIA, "GET /subjects/$s/versions"),
        (calls.MEDIA, "PATCH /subjects/$s/versions"),
    ),
    "Empty schemas are accepted, a missing one is an internal error, and so is a later check.": (
        (calls.BODIES, _REGISTER),
    ),
    "The media type application/octet-stream is refused, which Confluent's forwarding uses.": (
        (calls.MEDIA, _REGISTER),
    ),
    "Deletions in the wrong order have the status 409 instead of 404.": (
        (calls.DELETED_SUBJECT, "DELETE /subjects/$s?permanent=true"),
        (calls.DELETED_VERSION, "DELETE /subjects/$s/versions/1?permanent=true"),
        (calls.DELETED_VERSION, "DELETE /subjects/$s/versions/1"),
    ),
    "The schemas of a deleted subject are not shown, though its versions are.": (
        (calls.DELETED_SUBJECT, "GET /subjects/$s/versions/1?deleted=true"),
        (calls.DELETED_SUBJECT, "POST /subjects/$s"),
    ),
    "A deletion also returns the versions that were deleted before.": (
        (calls.DELETED_SUBJECT, "DELETE /subjects/$s"),
    ),
    "A new version does not replace a deleted one with the same schema.": (
        (calls.DELETED_SUBJECT, "GET /subjects/$s/versions?deleted=true"),
    ),
    "A schema of another type than its subject is invalid instead of incompatible.": (
        (calls.TYPES, "POST /subjects/$s/versions"),
    ),
    "References of deleted schemas count.": (
        (calls.REFERENCES, "GET /subjects/$s/versions/1/referencedby"),
        (calls.REFERENCES, "DELETE /subjects/$s"),
    ),
    "A check of all versions of an unknown subject fails, and no check has messages.": (
        (calls.COMPATIBILITY, _CHECK),
        (calls.COMPATIBILITY, f"{_CHECK}/latest?verbose=true"),
    ),
    "The parameter subjectPrefix is ignored.": (
        (calls.DELETED_SUBJECT, "GET /subjects?subjectPrefix=$s"),
        (calls.DELETED_SUBJECT, "GET /subjects?subjectPrefix=$s&deleted=true"),
        (calls.BODIES, "GET /subjects?subjectPrefix=$s"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p&offset=1&limit=1"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p&limit=1"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p&offset=7"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p&deleted=true"),
        (calls.PAGES, "GET /subjects?subjectPrefix=$p&deletedOnly=true"),
        (calls.CONTEXTS, "GET /subjects?subjectPrefix=:.$c:"),
        (calls.CONTEXTS, "GET /subjects?subjectPrefix=:*:$s"),
    ),
    "The list of schemas has their texts only.": (
        (calls.PAGES, "GET /schemas?subjectPrefix=$p&latestOnly=true"),
        (calls.PAGES, "GET /schemas?subjectPrefix=$p&offset=1&limit=1"),
        (calls.PAGES, "GET /schemas?subjectPrefix=$t&deleted=true"),
    ),
    "The parameter fetchMaxId is ignored.": ((calls.IDS, "GET /schemas/ids/@a?fetchMaxId=true"),),
    "The root is a page, and the registry describes itself in an interface of its own.": (
        (calls.ROOT, "GET /"),
        (calls.ROOT, "GET /v1/metadata/id"),
        (calls.ROOT, "GET /v1/metadata/version"),
    ),
}
