"""All admin calls as plans, one file per family: `Admin` and `aio.Admin` are made of them."""

from __future__ import annotations
