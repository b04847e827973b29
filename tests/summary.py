"""Lines of tests for the end of the output of a run, from all processes of `pytest -n`."""

from __future__ import annotations

import pytest

__all__ = ["SUMMARY"]

SUMMARY = pytest.StashKey[list[str]]()
