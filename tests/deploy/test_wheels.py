"""pip has a wheel of each dependency for each platform, with the exceptions of docs/start.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.wheels import EXTRAS, PLATFORMS, REQUIRED, wheels_of

PAGE = Path(__file__).parents[2] / "docs" / "start.md"
HEAD = "| package | platform without wheels | then |\n|---|---|---|\n"


class Documented(NamedTuple):
    """A row of the table of exceptions."""

    packages: list[str]
    # "required", or the extra that needs the packages.
    group: str
    platforms: str

    def concerns(self, platform: str) -> bool:
        return self.platforms.startswith("all") or platform.split()[0] in self.platforms


def documented() -> list[Documented]:
    table = PAGE.read_text().partition(HEAD)[2].partition("\n\n")[0]
    found = []
    for row in table.splitlines():
        first, platforms, _ = (cell.strip() for cell in row.strip("|").split("|"))
        packages, _, extra = first.partition("(extra ")
        found.append(
            Documented(
                re.findall(r"`([\w-]+)`", packages), extra.strip("`)") or REQUIRED, platforms
            )
        )
    return found


def test_the_exceptions_name_groups_and_platforms() -> None:
    rows = documented()
    assert rows
    for row in rows:
        assert row.group in (REQUIRED, *EXTRAS)
        assert any(map(row.concerns, PLATFORMS)), row


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", [REQUIRED, *EXTRAS])
def test_each_dependency_has_wheels(group: str) -> None:
    rows = [row for row in documented() if row.group == group]
    expected, found = set(), set()
    for (platform, python), has_wheel in wheels_of(group).items():
        excepted = {name for row in rows if row.concerns(platform) for name in row.packages}
        # A package may not be needed on a platform, as uvloop on Windows.
        expected |= {(platform, python, name) for name in excepted & has_wheel.keys()}
        found |= {(platform, python, name) for name, has in has_wheel.items() if not has}
    assert found == expected
