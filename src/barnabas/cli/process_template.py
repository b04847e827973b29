"""`python -m barnabas.cli.process_template SOCKET`: the process that the nodes are forked from.

`barnabas.cli.nodes.node_processes` starts it. Each fork runs `barnabas` with other arguments.
"""

from __future__ import annotations

import gc
import sys

from barnabas.cli.main import main
from barnabas.runtime.forked_process import serve_forks


def run_template(control: int) -> None:
    """Import what nodes need, then fork on request.

    Args:
        control: the descriptor of the socket to the process that starts the nodes.
    """
    # The imports leave no garbage worth a collection.
    gc.disable()
    from barnabas.cli.nodes import start_broker  # noqa: F401 - `main` would import it in each fork
    from barnabas.server.process.preload import load_all

    load_all()
    serve_forks(control, main)


if __name__ == "__main__":
    run_template(int(sys.argv[1]))
