"""The documentation table of a set of keys, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.key import Required

if TYPE_CHECKING:
    from barnabas.settings.definition import ConfigDefinition, ConfigKey

_HEAD = "| key | type | default | allowed | change | meaning |\n|---|---|---|---|---|---|\n"


def markdown_table(definition: ConfigDefinition) -> str:
    """Return a table with one row per key, in the order of declaration."""
    return _HEAD + "".join(_row(key) for key in definition)


def _row(key: ConfigKey) -> str:
    if isinstance(key.default, Required):
        default = "required"
    else:
        text = key.format(key.default)
        default = "null" if text is None else f"`{text}`" if text else "empty"
    cells = (
        f"`{key.name}`",
        key.type.name.lower(),
        default,
        "" if key.range is None else key.range.text,
        key.mode.value,
        key.doc,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"
