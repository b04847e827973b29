"""References between JSON Schemas: which schema a `$ref` leads to.

A reference is a URI, relative to the id of the schema that contains it, with a JSON pointer or an
anchor as its fragment. A registry gives other schemas by names; a name is a URI too, relative to
the id of the schema that refers to it, or to nothing.
Source: the keywords of drafts 4 to 2020-12 that identify schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from barnabas.serializers.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The URI of a schema without an id.
BASE = "http://schema.invalid/"
# Schemas of the drafts.
_KNOWN = ("http://json-schema.org/", "https://json-schema.org/")


class JsonPlace(NamedTuple):
    """A schema, and the URI to which its references are relative."""

    schema: Any
    base: str


class JsonReferences:
    """The targets of references.

    Args:
        schema: The JSON of the schema.
        references: The JSON of schemas to which it refers, by their names.
    """

    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        # Documents and schemas with an id, by URI.
        self._resources: dict[str, JsonPlace] = {}
        self._anchors: dict[tuple[str, str], JsonPlace] = {}
        # Targets of references that depend on the way to them.
        self._dynamic: dict[str, list[JsonPlace]] = {}
        for name, each in references.items():
            for uri in reference_uris(schema, name):
                self._register(each, uri)
        self._register(schema, BASE)

    def targets(self, keyword: str, reference: str, base: str) -> list[JsonPlace]:
        """Return the schemas to which a reference may lead; none for the schemas of the drafts.

        Args:
            keyword: `$ref`, `$dynamicRef` or `$recursiveRef`.
            reference: The value of the keyword.
            base: The URI to which it is relative.

        Raises:
            SchemaError: There are none.
        """
        rest, fragment = urldefrag(reference)
        uri = urljoin(base, rest) if rest else base
        found = list(self._dynamic.get(fragment, ())) if keyword != "$ref" else []
        resource = self._resources.get(uri)
        anchor = self._anchors.get((uri, fragment))
        if anchor is not None:
            found.append(anchor)
        elif resource is not None and (not fragment or fragment.startswith("/")):
            found.append(JsonPlace(_pointed(resource.schema, fragment, reference), resource.base))
        if not found and not uri.startswith(_KNOWN):
            raise SchemaError(
                f"the JSON Schema is invalid: {reference[:200]} is not among the references of the "
                f"schema"
            )
        return found

    def _register(self, document: Any, base: str) -> None:
        """Remember the ids and anchors in a document."""
        pending: list[tuple[Any, str]] = [(document, base)]
        self._resources.setdefault(base, JsonPlace(document, base))
        while pending:
            node, base = pending.pop()
            if isinstance(node, dict):
                base = self._register_names(node, base)
            pending += [(each, base) for each in parts_of(node)]

    def _register_names(self, node: dict[str, Any], base: str) -> str:
        """Remember the names of a schema; return the base of the schemas within it."""
        rest, fragment = id_of(node)
        if rest:
            base = urljoin(base, rest)
            self._resources[base] = JsonPlace(node, base)
        if fragment:
            self._anchors[base, fragment] = JsonPlace(node, base)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = node.get(keyword)
            if isinstance(anchor, str):
                self._anchors[base, anchor] = JsonPlace(node, base)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(anchor, []).append(JsonPlace(node, base))
        if node.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(JsonPlace(node, base))
        return base


def reference_uris(schema: Any, name: str) -> set[str]:
    """Return the URIs by which a schema may refer to another one that the registry names."""
    base = base_of(schema, BASE) if isinstance(schema, dict) else BASE
    return {urljoin(BASE, name), urljoin(base, name)}


def base_of(schema: dict[str, Any], outer: str) -> str:
    """Return the URI to which the references within a schema are relative.

    Args:
        schema: The schema.
        outer: The URI for the schema that contains it.
    """
    return urljoin(outer, id_of(schema)[0])


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the values within an object or a list."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def id_of(schema: dict[str, Any]) -> tuple[str, str]:
    """Return the URI and the fragment of a schema's id; both may be empty."""
    name = schema.get("$id", schema.get("id"))
    return urldefrag(name) if isinstance(name, str) else ("", "")


def _pointed(document: Any, pointer: str, reference: str) -> Any:
    """Return the part of a document at a JSON pointer.

    Raises:
        SchemaError: There is no such part.
    """
    found = document
    for word in pointer.split("/")[1:]:
        name = unquote(word).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise SchemaError(
                f"the JSON Schema is invalid: {reference[:200]} leads to no part of it"
            )
    return found
