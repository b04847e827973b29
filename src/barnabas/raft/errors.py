"""Why records did not become part of the metadata log."""

from __future__ import annotations


class RaftError(Exception):
    """Base of what the driver reports."""


class NotLeaderError(RaftError):
    """This replica does not lead, or lost its leadership before the records were committed."""


class MetadataBatchTooLargeError(RaftError):
    """The records of one append are more than one batch may hold."""


class SnapshotError(RaftError):
    """A snapshot file that is damaged or not complete."""
