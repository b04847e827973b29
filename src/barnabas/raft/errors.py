"""Errors of the metadata quorum."""

from __future__ import annotations


class RaftError(Exception):
    """Base class of the errors that the driver reports."""


class NotLeaderError(RaftError):
    """This replica does not lead, or lost its leadership before the records were committed."""


class MetadataBatchTooLargeError(RaftError):
    """The records of one append do not fit into one batch."""


class SnapshotError(RaftError):
    """A snapshot file is damaged or incomplete."""
