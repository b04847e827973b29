"""Format directories with the command of Barnabas."""

from __future__ import annotations

import subprocess
import sys

from barnabas.testing.cluster_process import NodeProcess


def format_by_barnabas(node: NodeProcess, *words: str) -> None:
    node.directory.mkdir(parents=True, exist_ok=True)
    NodeProcess.prepare(node)
    command = [sys.executable, "-m", "barnabas.cli.main", "format", str(node.properties_file)]
    done = subprocess.run(
        [*command, "--cluster-id", node.options.cluster_id, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{node.data_directory} formatted, directory.id " in done.stdout
