"""Errors of pipeline projects."""

from __future__ import annotations


class ProjectError(ValueError):
    """A project cannot be created, read or run; the message says what to do."""
