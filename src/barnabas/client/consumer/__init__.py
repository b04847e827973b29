"""The consumer: positions, fetched records, commits, and the core of both consumer classes."""

from __future__ import annotations
