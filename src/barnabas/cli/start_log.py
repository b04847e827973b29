"""The log of a broker on standard error: quiet unless asked, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMAT_KEY = "barnabas.log.format"
LEVEL_KEY = "barnabas.log.level"

_TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object a line: timestamp (ISO 8601, UTC), level, logger, message, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_log(log_format: str, level: str) -> None:
    """Write from `level` on; what is no level or format is told when the keys are read."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT_FORMAT)
    )
    known = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
    logging.basicConfig(level=known.get(level, logging.WARNING), handlers=[handler])
