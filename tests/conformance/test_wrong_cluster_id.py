"""`barnabas start` with a `cluster.id` that differs from that of the existing cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess

if TYPE_CHECKING:
    from pathlib import Path

WRONG_ID = "AAAAAAAAAAAAAAAAAAAAAg"
LIMIT_S = 60.0


def start(node: NodeProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `barnabas start` to its end."""
    command = [sys.executable, "-m", "barnabas.cli.main", "start", str(node.properties_file)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_a_node_with_a_wrong_cluster_id_reports_the_correct_one_and_formats_nothing(
    tmp_path: Path,
) -> None:
    with ClusterProcess(3, 0, tmp_path) as cluster:
        node = cluster.node(3)
        node.kill()
        shutil.rmtree(node.data_directory)
        for words in (("--set", f"cluster.id={WRONG_ID}"), ()):
            ended = start(node, *words)
            assert ended.returncode == 1
            (line,) = ended.stderr.splitlines()
            assert f"belong to cluster {cluster.cluster_id}" in line
            assert f"set cluster.id={cluster.cluster_id}" in line
            assert not node.data_directory.exists()
        node.start()
