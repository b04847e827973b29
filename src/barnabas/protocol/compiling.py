"""Compile generated source into functions whose tracebacks show that source.

Every generated function is registered with `linecache` under a name such as `<barnabas.protocol
FetchRequest v12 decoder>`.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def compile_function(
    source: str, function: str, title: str, names: dict[str, Any]
) -> Callable[..., Any]:
    """Compile `source` with `names` as globals; return the function with this name."""
    filename = f"<barnabas.protocol {title}>"
    code = compile(source, filename, "exec")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(code, names)  # noqa: S102 - the source comes from the field tables of this package
    made: Callable[..., Any] = names[function]
    return made
