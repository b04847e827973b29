"""A small file system for one node, which a test fills and frees.

Without the right to mount, a limit on the file sizes of the process replaces the full disk.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

from barnabas.testing.cluster_process import NodeProcess

# Room that the limit of file sizes leaves.
FREE_BYTES = 32 * 1024
_FILLER = bytes(64 * 1024)


class SmallDisk:
    """A tmpfs below a node's directory.

    Args:
        node: a node that is not started yet, for its data.
        size_mb: size of the file system.
    """

    def __init__(self, node: NodeProcess, size_mb: int) -> None:
        self._node = node
        self._root = node.directory / "disk"
        self._root.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(self._root)],
            capture_output=True,
            check=False,
        )
        self.is_mounted = done.returncode == 0
        node.data_directory = self._root / "data"
        node.settings["log.dirs"] = str(node.data_directory)

    def fill(self) -> None:
        """Use all free space; the node is running."""
        if not self.is_mounted:
            limit_file_sizes(self._node)
            return
        with (self._root / "filler").open("wb", buffering=0) as filler:
            for size in (len(_FILLER), 512):
                try:
                    while True:
                        filler.write(_FILLER[:size])
                        os.fsync(filler.fileno())
                except OSError:
                    continue

    def free(self) -> None:
        """Free the space. The limit of a process ends with it."""
        (self._root / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount; the node must have ended."""
        if self.is_mounted:
            subprocess.run(["umount", str(self._root)], capture_output=True, check=False)


def limit_file_sizes(node: NodeProcess, topic: str = "") -> None:
    """Limit the growth of a process's files to a few kilobytes.

    Args:
        node: the running node.
        topic: the limit lies a little over the smallest of its active segments, so that one of them
            meets it before it is rolled; without a topic, over the largest log of all.
    """
    data = Path(node.data_directory)
    if topic:
        segments = [sorted(each.glob("*.log")) for each in data.glob(f"{topic}-*")]
        active = [paths[-1] for paths in segments if paths]
        size = min((path.stat().st_size for path in active), default=0)
    else:
        size = max((path.stat().st_size for path in data.glob("*/*.log")), default=0)
    limit = size + FREE_BYTES
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (limit, limit))
