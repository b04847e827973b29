"""The options of `barnabas console` that decide how records are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.output import fail_without_extra, option_record
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.formats import FormatRule
    from barnabas.console.messages.masking import MaskRule


class RecordRules(NamedTuple):
    """What the options give."""

    mask_file: str | None
    formats: Sequence[str]
    protobuf_types: Sequence[str]


record_options = option_record(
    "rules",
    RecordRules,
    click.option(
        "--mask",
        "mask_file",
        metavar="FILE",
        help="Hide parts of records by the rules in this file (TOML).",
    ),
    click.option(
        "--format",
        "formats",
        multiple=True,
        metavar="TOPIC[:key]=FORMAT",
        help="Decode the values or keys of these topics as json, text, xml, msgpack, cbor or hex.",
    ),
    click.option(
        "--protobuf",
        "protobuf_types",
        multiple=True,
        metavar="TOPIC[:key]=FILE:MESSAGE",
        help="Decode them as a message of a .proto file or a set of descriptors.",
    ),
)


def record_rules(given: RecordRules) -> dict[str, Any]:
    """Return the settings of a console for `masks` and `formats`.

    Raises:
        click.UsageError: A rule is malformed, or a file cannot be read.
    """
    return {
        "masks": () if given.mask_file is None else _read_masks(given.mask_file),
        "formats": _format_rules(given.formats, given.protobuf_types),
    }


def _read_masks(path: str) -> tuple[MaskRule, ...]:
    # Imported here because `barnabas console --help` decodes nothing.
    from barnabas.console.messages.given_rules import RuleError, parse_masks

    try:
        return parse_masks(RealDisk().read(path))
    except OSError as error:
        text = f"--mask {path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
    except RuleError as error:
        raise click.UsageError(f"--mask {path}: {error}") from None


def _format_rules(formats: Sequence[str], protobuf_types: Sequence[str]) -> tuple[FormatRule, ...]:
    from barnabas.console.messages.given_rules import RuleError, parse_format, parse_protobuf

    option = "--format"
    try:
        rules = [parse_format(each) for each in formats]
        option = "--protobuf"
        rules += [parse_protobuf(each, _load_protobuf) for each in protobuf_types]
    except RuleError as error:
        raise click.UsageError(f"{option} {error}") from None
    return tuple(rules)


def _load_protobuf(path: str, message: str) -> Callable[[bytes], Decoded]:
    try:
        from barnabas.console.messages.protobuf_files import ProtobufFormat
    except ImportError as error:
        fail_without_extra(error, "registry")
    from barnabas.serializers.errors import SchemaError

    try:
        return ProtobufFormat(path, message).decode
    except OSError as error:
        text = f"--protobuf {path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
    except SchemaError as error:
        raise click.UsageError(f"--protobuf {path}: {error}") from None
