"""The producer: collects records in batches and sends them in order."""

from __future__ import annotations
