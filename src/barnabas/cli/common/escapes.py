"""Escapes in delimiters and templates as users type them in a shell: \\n, \\t, \\x1f and so on."""

from __future__ import annotations

import re

import click

__all__ = ["unescape", "unescape_option", "unescape_separator"]

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes; an unknown escape stays unchanged."""
    pieces = []
    end = 0
    for found in _ESCAPE.finditer(text):
        pieces.append(text[end : found.start()].encode())
        name = found[1]
        if len(name) == 3:
            pieces.append(bytes.fromhex(name[1:]))
        else:
            pieces.append(_LETTERS.get(name, found[0].encode()))
        end = found.end()
    pieces.append(text[end:].encode())
    return b"".join(pieces)


def unescape_option(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> bytes | None:
    """Parse an option for text with escapes, which may be empty (a click callback)."""
    return None if value is None else unescape(value)


def unescape_separator(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> bytes | None:
    """Parse a separator option, at which input is split (a click callback).

    Raises:
        click.BadParameter: The separator is empty.
    """
    if value == "":
        hint = "; -W sends each file as one record" if param.name == "delimiter" else ""
        raise click.BadParameter(f"input cannot be split at an empty text{hint}", param=param)
    return unescape_option(ctx, param, value)
