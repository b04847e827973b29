"""Write requirements-runtime.lock: the part of requirements.lock that Barnabas needs to run.

`python -m tools.runtime_lock` in the environment of `make setup`, after a change of
requirements.lock or of the dependencies in pyproject.toml. A test compares the file.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILE = ROOT / "requirements-runtime.lock"
# Python versions whose requirements count: some packages are needed on older ones only.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def runtime_lock() -> str:
    """Return the entries of requirements.lock for the dependencies and what they need."""
    text = (ROOT / "requirements.lock").read_text()
    entries = {
        entry.partition("==")[0]: entry.strip() + "\n" for entry in re.split(r"\n(?=[a-z])", text)
    }
    return "".join(entries[name] for name in sorted(_needed(set(entries))))


def _needed(locked: set[str]) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(each) for each in project["dependencies"]]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or not _applies(requirement) or name not in locked:
            continue
        found.add(name)
        waiting += [Requirement(each) for each in requires(name) or ()]
    return found


def _applies(requirement: Requirement) -> bool:
    """Return whether a requirement counts on Linux, for one of the Python versions."""
    if requirement.marker is None:
        return True
    kind = {"sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    return any(
        requirement.marker.evaluate({**kind, "python_version": version}) for version in PYTHONS
    )


if __name__ == "__main__":
    FILE.write_text(runtime_lock())
