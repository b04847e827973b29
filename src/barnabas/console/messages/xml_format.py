"""XML with indentation, and as members for filters and masks.

Documents with a document type are not read: it could define entities that expand without end, or
that name files. The parser then shows the text as it is.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from barnabas.console.messages.decoded import (
    DEPTH_MAX,
    FULL_BYTES,
    Decoded,
    FormatError,
    is_text,
)

XML = "XML"


def decode_xml(data: bytes) -> Decoded:
    """Return an XML document with indentation.

    Raises:
        FormatError: It is not well-formed, has a document type, or is too large or too deep.
    """
    if len(data) > FULL_BYTES or not is_text(data):
        raise FormatError("not XML, or too large")
    reader = _Reader()
    parser = expat.ParserCreate("utf-8")
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.CommentHandler = reader.comment
    parser.ProcessingInstructionHandler = reader.instruction
    parser.StartDoctypeDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise FormatError(f"not XML: {error}") from None
    text = "\n".join(reader.lines).encode()
    return Decoded("text", text, data, len(data), XML, reader.root)


class _Reader:
    """Takes the events of the parser."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # The document as members. Attributes begin with @; the text beside them is #text.
        self.root: dict[str, Any] = {}
        # For each open element: its name and members.
        self._open: list[tuple[str, dict[str, Any]]] = []
        # The text since the last tag.
        self._text = ""
        # Whether the last tag was a start tag, so that the element may fit on one line.
        self._is_fresh = False

    def start(self, name: str, attributes: list[str]) -> None:
        """Handle a start tag; attributes are names and values in turn."""
        if len(self._open) >= DEPTH_MAX:
            raise FormatError(f"the XML is over {DEPTH_MAX} levels deep")
        self._finish_text()
        pairs = list(zip(attributes[::2], attributes[1::2], strict=True))
        words = "".join(f" {key}={quoteattr(value)}" for key, value in pairs)
        self._add(f"<{name}{words}>")
        self._open.append((name, {f"@{key}": value for key, value in pairs}))
        self._is_fresh = True

    def end(self, name: str) -> None:
        """Handle an end tag."""
        if self._is_fresh:
            start = self.lines[-1]
            content = escape(self._text)
            self.lines[-1] = f"{start}{content}</{name}>" if content else f"{start[:-1]}/>"
            _put(self._open[-1][1], "#text", self._text)
            self._text, self._is_fresh = "", False
            self._close()
            return
        self._finish_text()
        self._close()
        self._add(f"</{name}>")

    def text(self, data: str) -> None:
        """Handle text between tags."""
        self._text += data

    def comment(self, data: str) -> None:
        """Handle a comment; it is no member."""
        self._finish_text()
        self._add(f"<!--{data}-->")

    def instruction(self, target: str, data: str) -> None:
        """Handle a processing instruction; it is no member."""
        self._finish_text()
        self._add(f"<?{target} {data}?>")

    def refuse(self, *_words: object) -> None:
        """Refuse a document type."""
        raise FormatError("XML with a document type is not read")

    def _finish_text(self) -> None:
        text, self._text = self._text.strip(), ""
        self._is_fresh = False
        if text:
            self._add(escape(text))
            _put(self._open[-1][1], "#text", text)

    def _add(self, line: str) -> None:
        self.lines.append("  " * len(self._open) + line)

    def _close(self) -> None:
        """Add the members of the innermost element to those of the outer one."""
        name, members = self._open.pop()
        outer = self._open[-1][1] if self._open else self.root
        _put(outer, name, members.get("#text", "") if not members.keys() - {"#text"} else members)


def _put(members: dict[str, Any], name: str, value: Any) -> None:
    """Add a member; members of one name are a list."""
    if name == "#text" and not value:
        return
    if name not in members:
        members[name] = value
    elif isinstance(members[name], list):
        members[name].append(value)
    else:
        members[name] = [members[name], value]
