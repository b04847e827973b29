"""Lines that tests have to say at the end of a run, from whichever process ran them."""

from __future__ import annotations

import pytest

__all__ = ["SUMMARY"]

SUMMARY = pytest.StashKey[list[str]]()
