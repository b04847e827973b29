"""Files that delta-rs cannot replace, because it changes their paths.

Spark's Delta writes characters such as `ü` as they are to the path of a file, for instance in the
directory of a partition. If delta-rs removes such a file, it writes the percent-encoded path to the
log. That path names no file of the table, so the rows stay beside those that replace them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import DeltaTable

# All but the printable characters of ASCII without the tilde.
_CHANGED = "[^ -}]"


def unreplaceable_path(table: DeltaTable) -> str | None:
    """Return the path of a file that delta-rs cannot replace; None if it can replace all files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    paths = pa.table(table.get_add_actions())["path"].cast(pa.string())
    found = paths.filter(pc.match_substring_regex(paths, _CHANGED))
    return found[0].as_py() if len(found) else None
