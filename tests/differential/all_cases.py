"""All cases: importing the modules of `cases` registers them."""

from __future__ import annotations

import importlib
from pathlib import Path

from differential.case import CASES

for _path in sorted((Path(__file__).parent / "cases").glob("*.py")):
    importlib.import_module(f"differential.cases.{_path.stem}")

__all__ = ["CASES"]
