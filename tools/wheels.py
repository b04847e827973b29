"""Find the platforms for which pip has a wheel of each dependency, and print them as a table.

pip chooses the wheels as on the other platform, without installing them. A dependency without a
wheel has to be compiled there, or is not installed at all.

    python -m tools.wheels                  required dependencies and all extras for users
    python -m tools.wheels required spark   some of them
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIRED = "required"
EXTRAS = ("oauth", "tiered", "console", "registry", "arrow", "spark", "delta", "iceberg")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_GLIBC = (17, 24, 26, 27, 28, 31, 34)
# What pip calls each platform. For macOS it adds the names of the earlier releases.
PLATFORMS = {
    "Linux x86-64": [f"manylinux_2_{minor}_x86_64" for minor in _GLIBC] + ["manylinux2014_x86_64"],
    "Linux arm64": [f"manylinux_2_{minor}_aarch64" for minor in _GLIBC] + ["manylinux2014_aarch64"],
    "musl x86-64": ["musllinux_1_1_x86_64", "musllinux_1_2_x86_64"],
    "musl arm64": ["musllinux_1_1_aarch64", "musllinux_1_2_aarch64"],
    "macOS arm64": ["macosx_14_0_arm64"],
    "macOS x86-64": ["macosx_14_0_x86_64"],
    "Windows x86-64": ["win_amd64"],
}
# The values of `sys_platform` and `platform_system` in markers.
_SYSTEMS = {
    "Linux": ("linux", "Linux"),
    "musl": ("linux", "Linux"),
    "macOS": ("darwin", "Darwin"),
    "Windows": ("win32", "Windows"),
}


def main() -> int:
    """Print a table for each group of dependencies that the arguments name."""
    groups = sys.argv[1:] or [REQUIRED, *EXTRAS]
    for group in groups:
        print(f"\n{group}\n\n| package | {' | '.join(PLATFORMS)} |\n|---|{'---|' * len(PLATFORMS)}")
        found = wheels_of(group)
        for name in sorted({name for names in found.values() for name in names}):
            cells = [_cell(name, platform, found) for platform in PLATFORMS]
            if any(cell != "all" for cell in cells):
                print(f"| {name} | {' | '.join(cells)} |")
        print("| all others | " + " | ".join("all" for _ in PLATFORMS) + " |", flush=True)
    return 0


def wheels_of(group: str) -> dict[tuple[str, str], dict[str, bool]]:
    """Return for (platform, Python) each package that is needed there, and if it has a wheel."""
    return {
        (platform, python): dict(_available(needed(group, platform, python), platform, python))
        for platform in PLATFORMS
        for python in PYTHONS
    }


def needed(group: str, platform: str, python: str) -> dict[str, str]:
    """Return the requirements of a group by name, with what they need themselves."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    texts = project["dependencies"] if group == REQUIRED else _extra(project, group)
    sys_platform, platform_system = _SYSTEMS[platform.partition(" ")[0]]
    environment = {
        "sys_platform": sys_platform,
        "platform_system": platform_system,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    found: dict[str, str] = {}
    waiting = [Requirement(text) for text in texts]
    while waiting:
        each = waiting.pop()
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        is_needed = each.marker is None or any(
            each.marker.evaluate({**environment, "extra": extra}) for extra in each.extras or {""}
        )
        if name in found or not is_needed:
            continue
        found[name] = f"{name}{each.specifier}"
        waiting += _requirements_of(each)
    return found


def _extra(project: dict[str, dict[str, list[str]]], group: str) -> list[str]:
    texts = project["optional-dependencies"][group]
    return [text for text in texts if not text.startswith("barnabas[")]


def _requirements_of(requirement: Requirement) -> Iterator[Requirement]:
    """Yield what the installed version of a package needs with the chosen extras."""
    try:
        texts = requires(requirement.name) or []
    except PackageNotFoundError:
        return
    for text in texts:
        each = Requirement(text)
        if each.marker is None or "extra" not in str(each.marker):
            yield each
        elif any(each.marker.evaluate({"extra": extra}) for extra in requirement.extras):
            each.marker = None
            yield each


def _available(
    requirements: dict[str, str], platform: str, python: str
) -> Iterator[tuple[str, bool]]:
    """Yield each name, and whether pip finds a wheel. Halve the names until none is missing."""
    names = list(requirements)
    if not names:
        return
    if _has_wheels(requirements.values(), platform, python):
        yield from ((name, True) for name in names)
    elif len(names) == 1:
        yield names[0], False
    else:
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            yield from _available({name: requirements[name] for name in half}, platform, python)


def _has_wheels(requirements: Iterable[str], platform: str, python: str) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps"]
        words += ["--only-binary=:all:", "--target", directory, "--python-version", python]
        words += [word for name in PLATFORMS[platform] for word in ("--platform", name)]
        tried = subprocess.run([*words, *requirements], capture_output=True, check=False)
        return tried.returncode == 0


def _cell(name: str, platform: str, found: dict[tuple[str, str], dict[str, bool]]) -> str:
    """Return "all", the Pythons with a wheel, "none", or "-" if the package is not needed."""
    known = [
        (python, found[platform, python][name])
        for python in PYTHONS
        if name in found[platform, python]
    ]
    having = [python for python, has_wheel in known if has_wheel]
    if not known:
        return "-"
    return "all" if len(having) == len(known) else ", ".join(having) or "none"


if __name__ == "__main__":
    sys.exit(main())
