"""The log of a broker on standard error, as text or as JSON; by default only warnings."""

from __future__ import annotations

import logging
import sys
import textwrap
from datetime import UTC, datetime

from barnabas.cli.common.printable import json_line, printable, printable_lines

FORMAT_KEY = "barnabas.log.format"
LEVEL_KEY = "barnabas.log.level"

# Before each line of a traceback.
_INDENT = "    "


class TextFormatter(logging.Formatter):
    """Formatter with one line per message; the indented lines of a traceback follow it.

    Messages contain text from clients and peers. A newline in it must not start a line that looks
    like a message of the broker, and no escape sequence may reach a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted lines."""
        stamp = self.formatTime(record)
        line = f"{stamp} {record.levelname} {record.name}: {printable(record.getMessage())}"
        if record.exc_info:
            trace = printable_lines(self.formatException(record.exc_info))
            line += "\n" + textwrap.indent(trace, _INDENT, lambda _: True)
        return line


class JsonFormatter(logging.Formatter):
    """Formatter with one JSON object per line.

    Its members are timestamp (ISO 8601, UTC), level, logger, message and exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted line."""
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_line(line)


def set_up_log(log_format: str, level: str) -> None:
    """Write log messages of at least `level`.

    An invalid level or format is reported later, when the configuration is read.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    known = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
    logging.basicConfig(level=known.get(level, logging.WARNING), handlers=[handler])
