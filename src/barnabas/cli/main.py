"""The command `barnabas`.

A broker answers within 300 ms of being started, and importing click takes a fifth of that. So
a plain `barnabas start …` is read by hand; whatever needs help texts or complaints about usage
goes to click, which has the same options.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from barnabas.cli.start_options import StartOptions


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and leave the process with the command's exit status.

    Args:
        arguments: what stands behind the program's name; the process's own when None.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = StartOptions.parse(words[1:]) if words[:1] == ["start"] else None
    if options is not None:
        # Imports make 60,000 objects, of which 600 are garbage; looking for it again and again
        # takes a tenth of a start. It is looked for once all is imported (`start_broker`).
        gc.disable()
        from barnabas.cli.start_broker import start_broker

        sys.exit(start_broker(options))
    from barnabas.cli.group import group

    return group.main(args=words, prog_name="barnabas")


if __name__ == "__main__":
    main()
