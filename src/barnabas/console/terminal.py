"""Warnings and errors of a console on its terminal."""

from __future__ import annotations

import logging

from barnabas.cli.common.output import problem


class _Warnings(logging.Handler):
    """Prints warnings and errors of the server as the commands print theirs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, with its traceback if there is one."""
        problem(self.format(record))


def show_warnings() -> None:
    """Print the warnings of the server and of the console, and none of its clients."""
    handler = _Warnings(logging.WARNING)
    logging.getLogger("uvicorn").addHandler(handler)
    logging.getLogger("asyncio").addHandler(handler)
    logging.getLogger("barnabas.console").addHandler(handler)
    # Pages show the errors of the client.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
