"""Topics whose logs may lack offsets, by the metadata log in the same data directory.

A log that was copied from the leader has the gaps of the leader's compaction, even if this broker
has not compacted it, so that `cleaner-offset-checkpoint` does not name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.log.read_only import ReadOnlyFile
from barnabas.cli.log.segment_scan import SegmentScan
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import decode_metadata_record
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.record.reader import records_of
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compacted_topics"]

_METADATA_LOG = "__cluster_metadata-0"
_SUFFIXES = (".log", ".checkpoint")
_TOPIC = 2


def compacted_topics(path: str) -> frozenset[str]:
    """Return the topics that have or had a `cleanup.policy` with compaction.

    Args:
        path: the data directory. Parts of its metadata log that are missing or damaged count as
            empty.
    """
    return frozenset(
        record.resource_name
        for record in _config_records(f"{path}/{_METADATA_LOG}")
        if record.resource_type == _TOPIC
        and record.name == "cleanup.policy"
        and "compact" in (record.value or "")
    )


def _config_records(directory: str) -> Iterator[ConfigRecord]:
    disk = RealDisk()
    if not disk.is_directory(directory):
        return
    for name in disk.list(directory):
        if not name.endswith(_SUFFIXES):
            continue
        try:
            with ReadOnlyFile(f"{directory}/{name}") as file:
                yield from _in_file(file)
        except OSError:
            # The node has deleted the file, or the disk cannot read it.
            continue


def _in_file(file: ReadOnlyFile) -> Iterator[ConfigRecord]:
    for batch in SegmentScan(file):
        if not batch.crc_is_right or batch.header.is_control:
            continue
        try:
            for record in records_of(batch.data, 0, batch.header):
                decoded, _ = decode_metadata_record(record.value or b"")
                if isinstance(decoded, ConfigRecord):
                    yield decoded
        except (CorruptBatchError, ProtocolError):
            # Other commands report damage of the metadata log.
            continue
