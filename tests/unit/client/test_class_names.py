"""The names of classes in the client are unique, so that a search for a name finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

CLIENT = Path(__file__).parents[3] / "src" / "barnabas" / "client"
# The asyncio classes have the names of the blocking ones; users choose by the module.
FACES = {"Admin", "Consumer", "Producer", "ShareConsumer"}


def test_no_two_classes_have_the_same_name() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(CLIENT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_")].append(str(path.relative_to(CLIENT)))
    repeated = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert set(repeated) == FACES, repeated
    for name in FACES:
        assert [path.split("/")[0] == "aio" for path in repeated[name]].count(True) == 1
