"""`barnabas log dump`: the content of segments, indexes, snapshots, checkpoints and other files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.output import problem
from barnabas.cli.common.printable import counted, echo, json_line
from barnabas.cli.common.tables import bad, dim, echo_line, strong, warn
from barnabas.cli.log.record_contents import kind_of_topic, record_content
from barnabas.cli.log.segment_files import ReadOnlyFile, ScannedBatch, SegmentScan, partition_of
from barnabas.record.compression import NAMES as COMPRESSIONS
from barnabas.record.reader import records_of
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.disk import RealDisk
from barnabas.settings.properties import parse_properties
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.segment.segment_indexes import OffsetIndex, TimeIndex
from barnabas.storage.segment.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.record.record import Record


_INDEX_BYTES_MAX = 1 << 30
_VALUE_WIDTH = 200


class DumpOptions(NamedTuple):
    """The options of a dump."""

    # Whether to show records: True, False, or None for those of internal topics only.
    records: bool | None = None
    # How to decode records; None: by the topic's name.
    kind: str | None = None
    first_offset: int = 0
    # Maximum number of batches to show in total; None for no limit.
    limit: int | None = None
    as_json: bool = False


class Dumper:
    """Shows files one after the other, and records whether one of them was damaged."""

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        self._left = options.limit
        self._disk = RealDisk()
        # Whether a batch was shown.
        self._has_shown = False
        # End offset of the last batch before `first_offset`; None until a segment is read.
        self._end_offset: int | None = None
        self.failed = False

    def dump(self, path: str) -> None:
        """Show a file, or all segments of a partition's directory."""
        if self._disk.is_directory(path):
            names = self._names(path)
            if not names:
                echo(f"{path}: the partition has no records yet", err=True)
            for name in names:
                if self._left == 0:
                    break
                self.dump(f"{path}/{name}")
            return
        show = self._reader(PurePosixPath(path).name)
        # With a first offset, the first batch that is shown prints the name of its segment.
        if not self._options.first_offset or show != self._batches:
            self._head(path)
        try:
            show(path)
        except FileNotFoundError:
            self._fail(path, "it was deleted while it was read")
        except (CorruptSnapshotError, CheckpointError, ValueError) as error:
            self._fail(path, str(error))

    def finish(self) -> None:
        """Check that a batch was shown, if segments were read and the first offset was given.

        Raises:
            click.UsageError: All batches end before the first offset.
        """
        if self._end_offset is not None and not self._has_shown and not self.failed:
            raise click.UsageError(
                f"--from {self._options.first_offset}: the batches end before offset "
                f"{self._end_offset}"
            )

    def _names(self, path: str) -> list[str]:
        """Return the segments and snapshots of a partition's directory that are to be shown."""
        present = self._disk.list(path)
        segments = sorted(name for name in present if name.endswith(".log"))
        snapshots = [name for name in present if name.endswith(".checkpoint")]
        # A partition that never had a record has no segments.
        if not segments and not snapshots and "partition.metadata" not in present:
            raise click.UsageError(f"{path} contains no segments (*.log)")
        first_offset = self._options.first_offset
        if not first_offset:
            return segments + snapshots
        # Offsets of the records of a snapshot are not those of the log.
        later = [name for name in segments if _base_offset(name) > first_offset]
        return segments[max(0, len(segments) - len(later) - 1) :]

    def _head(self, path: str) -> None:
        if not self._options.as_json:
            echo_line(strong(path))

    def _reader(self, name: str) -> Callable[[str], None]:
        by_name = {
            "leader-epoch-checkpoint": lambda path: self._lines(path, ("epoch", "start_offset")),
            "meta.properties": self._properties,
            "partition.metadata": self._text,
            "quorum-state": self._text,
        }
        if name in by_name:
            return by_name[name]
        if name.endswith("-offset-checkpoint"):
            return lambda path: self._lines(path, ("topic", "partition", "offset"))
        by_suffix = {
            ".log": self._batches,
            ".checkpoint": self._batches,
            ".index": self._offset_index,
            ".timeindex": self._time_index,
            ".txnindex": self._transaction_index,
            ".snapshot": self._producers,
        }
        stem = name.removesuffix(".deleted").removesuffix(".cleaned").removesuffix(".swap")
        suffix = PurePosixPath(stem).suffix
        if suffix not in by_suffix:
            known = " ".join((*by_suffix, *by_name, "*-offset-checkpoint"))
            raise click.UsageError(f"{name}: not one of {known}")
        return by_suffix[suffix]

    def _fail(self, path: str, message: str) -> None:
        self.failed = True
        problem(f"{path}: {message}; see `barnabas log verify`")

    def _show(self, kind: str, fields: dict[str, Any]) -> None:
        if self._options.as_json:
            echo(json_line({"entry": kind, **fields}))
        else:
            echo_line("  " + "  ".join(f"{name} {value}" for name, value in fields.items()))

    # Segments

    def _batches(self, path: str) -> None:
        directory = partition_of(str(PurePosixPath(self._disk.absolute(path)).parent))
        kind = self._options.kind or kind_of_topic(directory.topic if directory else "")
        with_records = self._options.records
        if with_records is None:
            with_records = kind != "plain"
        with ReadOnlyFile(path) as file:
            scan = SegmentScan(file)
            has_head = not self._options.first_offset
            if not has_head:
                self._end_offset = self._end_offset or 0
            for batch in scan:
                if batch.header.next_offset <= self._options.first_offset:
                    self._end_offset = batch.header.next_offset
                    continue
                if self._left is not None:
                    if self._left == 0:
                        return
                    self._left -= 1
                if not has_head:
                    self._head(path)
                has_head = self._has_shown = True
                self._show_batch(batch, kind, with_records=with_records)
                self.failed = self.failed or not batch.crc_is_right
            if scan.reason is not None:
                self._fail(path, f"at position {scan.stopped_at}: {scan.reason}")

    def _show_batch(self, batch: ScannedBatch, kind: str, *, with_records: bool) -> None:
        fields = _batch_fields(batch)
        if self._options.as_json:
            if with_records:
                fields["records"] = [_record_fields(r, c) for r, c in self._records(batch, kind)]
            echo(json_line({"entry": "batch", **fields}))
            return
        header = batch.header
        echo_line(
            strong(f"{header.base_offset}-{header.last_offset}"),
            dim(f"  at {batch.position}, {header.size} bytes"),
            f"  {counted(header.record_count, 'record')}",
            f"  epoch {header.partition_leader_epoch}  {fields['compression']}",
            f"  {fields['timestamp']} {fields['timestamp_type']}",
            *_producer_words(batch),
            "" if batch.crc_is_right else bad("  CRC WRONG"),
        )
        if with_records:
            for record, content in self._records(batch, kind):
                head = f"    {record.offset} "
                echo_line(dim(head), _one_line(content))

    def _records(self, batch: ScannedBatch, kind: str) -> Iterator[tuple[Record, dict[str, Any]]]:
        try:
            records = records_of(batch.data, 0, batch.header)
        except CorruptBatchError as error:
            self._fail(f"batch at {batch.position}", str(error))
            return
        for record in records:
            yield record, record_content(record, kind, is_control=batch.header.is_control)

    # The other files

    def _offset_index(self, path: str) -> None:
        index = OffsetIndex(self._disk, path, _base_offset(path), _INDEX_BYTES_MAX)
        content = index.file.read()
        for at in range(0, len(content), 8):
            offset = index.base_offset + int.from_bytes(content[at : at + 4], "big", signed=True)
            position = int.from_bytes(content[at + 4 : at + 8], "big", signed=True)
            self._show("offset index", {"offset": offset, "position": position})

    def _time_index(self, path: str) -> None:
        index = TimeIndex(self._disk, path, _base_offset(path), _INDEX_BYTES_MAX)
        content = index.file.read()
        for at in range(0, len(content), 12):
            stamp = int.from_bytes(content[at : at + 8], "big", signed=True)
            relative = int.from_bytes(content[at + 8 : at + 12], "big", signed=True)
            fields = {"timestamp": stamp, "time": moment(stamp)}
            self._show("time index", {**fields, "offset": index.base_offset + relative})

    def _transaction_index(self, path: str) -> None:
        for entry in TransactionIndex(self._disk, path).entries():
            self._show("aborted transaction", entry._asdict())

    def _producers(self, path: str) -> None:
        for entry in decode_snapshot(self._disk.read(path)):
            fields = {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_offset,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "transaction_first_offset": entry.txn_first_offset,
            }
            self._show("producer", fields)

    def _lines(self, path: str, names: tuple[str, ...]) -> None:
        content = self._disk.read(path)
        for words in decode_lines(content, len(names)) if content else []:
            values = [int(word) if word.lstrip("-").isdigit() else word for word in words]
            self._show("line", dict(zip(names, values, strict=True)))

    def _properties(self, path: str) -> None:
        self._show("properties", dict(parse_properties(self._disk.read(path).decode())))

    def _text(self, path: str) -> None:
        self._show("text", {"content": self._disk.read(path).decode("utf-8", "replace").strip()})


def moment(milliseconds: int) -> str:
    """Return a timestamp as text in UTC; "none" for -1 and times that no calendar supports."""
    if milliseconds < 0:
        return "none"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return "none"


def _base_offset(path: str) -> int:
    stem = PurePosixPath(path).name.partition(".")[0]
    if not stem.isdigit():
        raise click.UsageError(f"{path}: the name does not begin with the segment's base offset")
    return int(stem)


def _batch_fields(batch: ScannedBatch) -> dict[str, Any]:
    header = batch.header
    known = header.compression < len(COMPRESSIONS)
    return {
        "position": batch.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "compression": COMPRESSIONS[header.compression] if known else f"?{header.compression}",
        "timestamp_type": "appended" if header.has_log_append_time else "created",
        "max_timestamp": header.max_timestamp,
        "timestamp": moment(header.max_timestamp),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.delete_horizon,
        "crc": header.crc,
        "crc_is_right": batch.crc_is_right,
    }


def _producer_words(batch: ScannedBatch) -> list[object]:
    header = batch.header
    words: list[object] = []
    if header.has_producer_id:
        words.append(f"  producer {header.producer_id}/{header.producer_epoch}")
        if header.base_sequence >= 0:
            words.append(f" seq {header.base_sequence}-{header.last_sequence}")
    if header.is_transactional:
        words.append(warn("  transactional"))
    if header.is_control:
        words.append(warn("  control"))
    return words


def _record_fields(record: Record, content: dict[str, Any]) -> dict[str, Any]:
    return {"offset": record.offset, "timestamp": record.timestamp, **content}


def _one_line(content: dict[str, Any]) -> str:
    """Return a record's content as text on one line."""
    kind = content.get("type")
    if kind is not None and "data" in content:
        return f"{kind} {json.dumps(content['data'], ensure_ascii=False)}"
    if kind is not None and "value" in content:
        key = json.dumps(content["key"], ensure_ascii=False)
        value = content["value"]
        shown = "deleted" if value is None else json.dumps(value, ensure_ascii=False)
        return f"{kind} {key} -> {shown}"
    line = json.dumps(content, ensure_ascii=False)
    return line if len(line) <= _VALUE_WIDTH else line[:_VALUE_WIDTH] + "…"
