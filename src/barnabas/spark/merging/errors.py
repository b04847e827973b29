"""Errors of merged batches."""

from __future__ import annotations


class MergeError(RuntimeError):
    """The rows of a batch cannot be merged into the table; the message says why."""
