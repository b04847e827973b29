"""All admin calls as plans, one file per area; `Admin` and `aio.Admin` run them."""

from __future__ import annotations
