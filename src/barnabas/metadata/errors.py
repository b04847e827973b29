"""What can be wrong with the metadata log itself."""

from __future__ import annotations


class MetadataReplayError(ValueError):
    """A record that cannot follow those before it: the log is broken, or we have a bug."""
