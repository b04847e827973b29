"""Keys, values and headers from the fields of a form: text, JSON, bytes, files, schemas.

For a part of a record, "key" or "value", a form has these fields:

- `key_kind`: one of `KINDS`;
- `key`: what was typed;
- `key_file`: the content of a file, for the kind `file`;
- `key_subject`, `key_version`, `key_message`: the schema, for the kind `schema`. The version is
  empty for the latest one. The message names a type of a Protobuf file.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from typing import TYPE_CHECKING

from barnabas.cli.records.schema_formats import json_writer
from barnabas.console.forms import FormError
from barnabas.console.writing.examples import example_of
from barnabas.serializers.basic import deserialize_json
from barnabas.serializers.errors import RegistryError, SchemaError
from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.console.forms import Fields
    from barnabas.serializers.lookups import Part, SchemaSerializer
    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import RegisteredSchema

PARTS: tuple[Part, ...] = ("key", "value")
# The kinds in the order of the choice, with their names.
KINDS = {
    "auto": "text, null if empty",
    "text": "text",
    "json": "JSON",
    "hex": "bytes in hex",
    "base64": "bytes in base64",
    "file": "a file, chosen below",
    "schema": "JSON, by the schema named below",
    "null": "null",
}
# The kinds whose text may be wrong.
_WORDS = {"json": "JSON", "hex": "hex", "base64": "base64", "schema": "JSON"}
_DEFAULT_KINDS = {"key": "auto", "value": "text"}


def typed_text(form: Fields, name: str) -> str:
    """Return the text of an area. Browsers send line ends as CR LF."""
    return form.text(name).replace("\r\n", "\n")


def payload(form: Fields, part: Part, topic: str, registry: SchemaRegistry | None) -> bytes | None:
    """Return the bytes of a key or a value. The kind `schema` asks the registry, which blocks.

    Raises:
        FormError: The text does not have its kind, or does not fit its schema.
    """
    kind = form.text(f"{part}_kind") or _DEFAULT_KINDS[part]
    text = typed_text(form, part)
    try:
        match kind:
            case "null":
                return None
            case "auto":
                return text.encode() or None
            case "text":
                return text.encode()
            case "json":
                deserialize_json(text.encode())
                return text.encode()
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            case "file":
                found = form.file(f"{part}_file")
                if found is None:
                    raise FormError("choose a file", f"{part}_file")
                return found
            case "schema":
                return _by_schema(form, part, topic, registry)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, FormError):
            raise
        raise FormError(f"the {part} is not {_WORDS.get(kind, kind)}: {error}", part) from None
    except RecursionError:
        text = f"the {part} is nested too deeply: write JSON with fewer levels"
        raise FormError(text, part) from None
    raise FormError(f"there is no kind {kind}", f"{part}_kind")


def _by_schema(
    form: Fields, part: Part, topic: str, registry: SchemaRegistry | None
) -> bytes | None:
    with _chosen_schema(form, part, topic, registry) as (known, found):
        serializer = _serializer(known, found, form.stripped(f"{part}_message"))
        try:
            return json_writer(serializer, topic, part)(typed_text(form, part))
        except SchemaError as error:
            text = f"the {part} does not fit version {found.version} of {found.subject}: {error}"
            raise FormError(text, part) from None


def schema_example(form: Fields, part: str, topic: str, registry: SchemaRegistry | None) -> str:
    """Return an example of the key or the value by the schema that a form names.

    Raises:
        FormError: There is no such schema, or it is malformed.
    """
    with _chosen_schema(form, part, topic, registry) as (known, found):
        try:
            return example_of(known, found.schema, form.stripped(f"{part}_message"))
        except (SchemaError, ValueError, TypeError, ArithmeticError) as error:
            text = f"the schema of {found.subject} has no example: {error}"
            raise FormError(text, f"{part}_subject") from None


@contextlib.contextmanager
def _chosen_schema(
    form: Fields, part: str, topic: str, registry: SchemaRegistry | None
) -> Iterator[tuple[SchemaRegistry, RegisteredSchema]]:
    """Yield the registry and the schema that a form names; errors belong to its fields.

    Raises:
        FormError: There is no such schema, or a package is missing.
    """
    if registry is None:
        text = "schemas need a registry: start the console with --registry URL"
        raise FormError(text, f"{part}_kind")
    subject = form.stripped(f"{part}_subject") or f"{topic}-{part}"
    version = form.number(f"{part}_version", 0)
    try:
        yield registry, registry.version(subject, version) if version else registry.latest(subject)
    except RegistryError as error:
        raise FormError(str(error), f"{part}_subject") from None
    except ModuleNotFoundError as error:
        text = f"schemas need the package {error.name}: install the extra `registry`"
        raise FormError(text, f"{part}_kind") from None


def _serializer(
    registry: SchemaRegistry, wanted: RegisteredSchema, message: str
) -> SchemaSerializer:
    """Return the serializer of a version of a subject. It never registers a schema."""

    def subject_name(_topic: str, _part: str, _record: str) -> str:
        return wanted.subject

    match wanted.schema.kind:
        case SchemaType.AVRO:
            from barnabas.serializers.avro import AvroSerializer

            return AvroSerializer(
                registry, wanted.schema, auto_register=False, subject_name=subject_name
            )
        case SchemaType.JSON:
            from barnabas.serializers.json_schema import JsonSchemaSerializer

            return JsonSchemaSerializer(
                registry, wanted.schema, auto_register=False, subject_name=subject_name
            )
        case SchemaType.PROTOBUF:
            from barnabas.serializers.protobuf import ProtobufSerializer

            return ProtobufSerializer(
                registry,
                message or None,
                wanted.schema,
                auto_register=False,
                subject_name=subject_name,
            )


# Header lines: the name, and how the value is written.
_HEADER = re.compile(r"(?P<name>[^=]*?)(?::(?P<kind>hex|base64))?=(?P<value>.*)")
_DECODERS: dict[str | None, Callable[[str], bytes]] = {
    None: str.encode,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def headers(form: Fields, name: str = "headers") -> list[tuple[str, bytes | None]]:
    """Return the headers of an area with one per line; a name may occur several times.

    A line is `name=text`, `name:hex=0a0b`, `name:base64=Cgs=`, or `name` alone for null.

    Raises:
        FormError: A line has another form.
    """
    found: list[tuple[str, bytes | None]] = []
    for line in form.text(name).splitlines():
        if not line.strip():
            continue
        fits = _HEADER.fullmatch(line.strip())
        if fits is None:
            found.append((line.strip(), None))
            continue
        if not fits["name"].strip():
            raise FormError(f"write each header as name=value, not {line.strip()!r}", name)
        try:
            value = _DECODERS[fits["kind"]](fits["value"].strip())
        except (binascii.Error, ValueError):
            text = f"the header {fits['name'].strip()} is not {_WORDS[fits['kind']]}"
            raise FormError(text, name) from None
        found.append((fits["name"].strip(), value))
    return found
