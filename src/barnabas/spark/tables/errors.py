"""Errors of the maintenance of tables."""

from __future__ import annotations


class MaintenanceError(RuntimeError):
    """A table cannot be opened or maintained; the message says why and what to do."""
