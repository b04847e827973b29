"""Errors in the content of the metadata log."""

from __future__ import annotations


class MetadataReplayError(ValueError):
    """A record contradicts the previous records: the log is damaged, or the code has a bug."""
