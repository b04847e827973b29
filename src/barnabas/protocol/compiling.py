"""Turns generated source into functions whose tracebacks show that source.

Every generated function is registered with `linecache` under a name such as
`<barnabas.protocol FetchRequest v12 decoder>`.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

from barnabas.protocol.schema import MISSING, Array, Kind, Struct

if TYPE_CHECKING:
    from collections.abc import Callable


def compile_function(
    source: str, function: str, title: str, names: dict[str, Any]
) -> Callable[..., Any]:
    """Compile `source`, in which `names` are globals, and return its function called `function`."""
    filename = f"<barnabas.protocol {title}>"
    code = compile(source, filename, "exec")
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(code, names)  # noqa: S102 - the source is made here, from field tables of this package
    made: Callable[..., Any] = names[function]
    return made


def compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """Write the keyword-only constructor of a struct from its field table."""
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters = ["self"]
    body = []
    for each in cls.__fields__:
        name = each.name
        if each.is_required:
            parameters.append(name)
            body.append(f"    self.{name} = {name}")
            continue
        is_plain = each.declared_default is not MISSING or isinstance(each.kind, Kind)
        if is_plain:
            names[f"D_{name}"] = each.default()
            parameters.append(f"{name}=D_{name}")
            body.append(f"    self.{name} = {name}")
            continue
        fresh = "[]" if isinstance(each.kind, Array) else f"F_{name}()"
        names[f"F_{name}"] = each.default
        parameters.append(f"{name}=MISSING")
        body.append(f"    self.{name} = {fresh} if {name} is MISSING else {name}")
    if len(parameters) > 1:
        parameters.insert(1, "*")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *body, "    return None", ""])
    return compile_function(source, "__init__", f"{cls.__name__} constructor", names)
