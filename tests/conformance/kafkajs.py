"""Runs kafkajs, which logs in, writes a record and reads it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from conformance.client_packages import node_package
from waiting import PATIENCE_S

_PROGRAM = Path(__file__).parent / "programs" / "secured_kafkajs.js"


def run_kafkajs(**options: Any) -> dict[str, str]:
    """Return the `value` that was read, or the name of the `error` and its `detail`.

    Args:
        options: bootstrap and topic; mechanism, with username and password or with a token; and
            ssl, with the paths of ca, cert and key.
    """
    modules = node_package("kafkajs") / "node_modules"
    done = subprocess.run(
        ["node", str(_PROGRAM), json.dumps(options)],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    result: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return result
