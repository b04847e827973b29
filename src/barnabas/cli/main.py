"""The command `barnabas`.

A broker must answer within 300 ms of its start, and the import of click takes a fifth of that. A
plain `barnabas start …` is therefore parsed without click. Help requests and usage errors go to
click, which has the same options.
"""

from __future__ import annotations

import errno
import gc
import sys
from typing import Any

from barnabas.cli.nodes.start_options import StartOptions
from barnabas.runtime.packages import MissingPackageError
from barnabas.runtime.process import (
    EXIT_INTERRUPTED,
    discard_standard_output,
    open_standard_streams,
)

# The pytest plugin asks a Barnabas of another environment with this option.
_LAUNCH_OPTION = "--print-launch-command"
# Errors of a write to a full disk, a full quota or a broken device. A traceback would not help.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and exit the process with the command's exit status.

    Args:
        arguments: The arguments after the program's name; None for those of the process.
    """
    open_standard_streams()
    words = sys.argv[1:] if arguments is None else arguments
    if words == [_LAUNCH_OPTION]:
        return sys.stdout.write(_launch_command())
    try:
        return _run(words)
    except MissingPackageError as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "barnabas"):
            raise
        sys.exit(f"error: {MissingPackageError(module, 'this command')}")


def _run(words: list[str]) -> Any:
    options = StartOptions.parse(words[1:]) if words[:1] == ["start"] else None
    if options is not None:
        # Imports create 60,000 objects, of which 600 are garbage. Repeated collections would take a
        # tenth of the start. `start_broker` enables collections again after the imports.
        gc.disable()
        from barnabas.cli.nodes.start_broker import start_broker

        sys.exit(start_broker(options))
    try:
        from barnabas.cli.group import group

        return group.main(args=words, prog_name="barnabas")
    except KeyboardInterrupt:
        # During the import of click.
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        discard_standard_output()
        sys.exit(f"error: cannot write {error.filename or 'the output'}: {error.strerror}")


def _launch_command() -> str:
    """Return the words that start this command again, without a launcher such as uvx, as JSON."""
    import json
    from pathlib import Path

    # A module, a script or an archive, without the option itself.
    words = [str(Path(word).resolve()) if Path(word).is_file() else word for word in sys.orig_argv]
    return json.dumps({"command": [sys.executable, *words[1:-1]]}) + "\n"


if __name__ == "__main__":
    main()
