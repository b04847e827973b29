"""The command that starts Barnabas: of this environment, or of another one.

The environment variable `KAFKA_BARNABAS` names a command in another environment, such as
`/opt/barnabas/bin/barnabas` or `uvx barnabas`. It is asked once how its interpreter is started:
`uvx` keeps running as the parent of the broker, and a signal to it would not reach the broker.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec

__all__ = ["VARIABLE", "BarnabasNotFoundError", "barnabas_command"]

VARIABLE = "KAFKA_BARNABAS"
# The option with which `barnabas` prints how it was started, as JSON.
LAUNCH_OPTION = "--print-launch-command"
# uvx and pipx may install Barnabas first.
_TIMEOUT_S = 600.0


class BarnabasNotFoundError(RuntimeError):
    """No command starts Barnabas; the message says how to name one."""


def barnabas_command() -> list[str]:
    """Return the words that start Barnabas, without arguments.

    Raises:
        BarnabasNotFoundError: this environment has no Barnabas, or the named command fails.
    """
    return list(_found(os.environ.get(VARIABLE, "")))


@lru_cache(maxsize=8)
def _found(named: str) -> tuple[str, ...]:
    if named.strip():
        return _launch_command(named)
    # Without its dependencies, a Barnabas of this environment cannot run.
    if all(find_spec(name) for name in ("barnabas", "msgspec", "click")):
        return sys.executable, "-m", "barnabas.cli.main"
    on_path = shutil.which("barnabas")
    if on_path is None:
        raise BarnabasNotFoundError(
            "this environment has no Barnabas, and no command `barnabas` is on the path. "
            f"Install Barnabas elsewhere, and name its command in {VARIABLE} or in pytest.ini: "
            "kafka_barnabas = /path/to/barnabas"
        )
    return _launch_command(shlex.quote(on_path))


def _launch_command(named: str) -> tuple[str, ...]:
    """Ask a command for the words that start its interpreter."""
    try:
        done = subprocess.run(
            [*shlex.split(named), LAUNCH_OPTION],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BarnabasNotFoundError(f"{VARIABLE}={named}: {error}") from error
    try:
        answer = json.loads(done.stdout)
        return tuple(answer["command"])
    except (ValueError, TypeError, KeyError):
        said = (done.stdout + done.stderr).strip()[-1000:]
        raise BarnabasNotFoundError(
            f"{VARIABLE}={named} is not a command of Barnabas 0.1.0 or later; "
            f"it ended with status {done.returncode} and wrote: {said}"
        ) from None
