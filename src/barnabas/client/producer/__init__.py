"""The producer: records gathered into batches, sent in order, and its faces' common core (F7)."""

from __future__ import annotations
