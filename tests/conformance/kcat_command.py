"""Run kcat."""

from __future__ import annotations

import subprocess

WAIT_S = 120


def kcat(bootstrap: str, *words: str, text: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
