"""Errors of pipeline projects."""

from __future__ import annotations


class ProjectError(ValueError):
    """A project cannot be created, read or run; the message says what to do."""


class MissingExtraError(ProjectError):
    """A package of the extra `spark` is not installed."""

    def __init__(self, error: ModuleNotFoundError) -> None:
        super().__init__(f"{error}: install Barnabas with its extra `spark`")
