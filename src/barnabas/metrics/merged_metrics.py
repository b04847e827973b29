"""Metrics of several processes as one text for Prometheus, told apart by a label.

The text format wants all samples of a metric in one group. So the texts of the processes are taken
apart by metric while they arrive, and written metric by metric.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELP, _TYPE = b"# HELP ", b"# TYPE "
_PIECE_LINES = 500


class ProcessMetricsText:
    """Takes apart the text of one process.

    Args:
        label: the label of the process with its value, for example `broker="101"`.
    """

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._rest = b""
        # Head and samples of each metric, in the order of their arrival.
        self.heads: dict[bytes, list[bytes]] = {}
        self.samples: dict[bytes, list[bytes]] = {}
        self._name = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece of the text."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith((_HELP, _TYPE)):
                self._name = line.split(b" ", 3)[2]
                self.heads.setdefault(self._name, []).append(line)
                self.samples.setdefault(self._name, [])
            elif line and not line.startswith(b"#"):
                self.samples.setdefault(self._name, []).append(self._labelled(line))

    def _labelled(self, line: bytes) -> bytes:
        """Return a sample with the label of the process before its own labels."""
        end = len(line) if (end := line.find(b" ")) < 0 else end
        brace = line.find(b"{", 0, end)
        if brace < 0:
            return line[:end] + b"{" + self._label + b"}" + line[end:]
        comma = b"" if line[brace + 1 : brace + 2] == b"}" else b","
        return line[: brace + 1] + self._label + comma + line[brace + 1 :]


def merged_text(texts: list[ProcessMetricsText]) -> Iterator[bytes]:
    """Yield the text of all processes in pieces, metric by metric."""
    names = dict.fromkeys(name for text in texts for name in text.samples)
    for name in names:
        head = next((text.heads[name] for text in texts if name in text.heads), [])
        if head:
            yield b"\n".join(head) + b"\n"
        for text in texts:
            lines = iter(text.samples.get(name, ()))
            while piece := list(islice(lines, _PIECE_LINES)):
                yield b"\n".join(piece) + b"\n"
