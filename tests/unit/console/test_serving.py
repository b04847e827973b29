"""The routes of a console, which other tests request one by one."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from starlette.routing import Route

from barnabas.console import pages
from barnabas.console.settings import ConsoleSettings
from console_in_process import NO_BROKER, ConsoleInProcess

# The list of clusters is the first page of a console with several of them.
OF_SEVERAL_CLUSTERS = {"clusters"}


def test_tests_of_all_pages_know_each_page_that_a_module_has() -> None:
    """Tests of masks, looks and rights request all paths, so that no page may be left out."""
    declared: set[str] = set()
    for module in pkgutil.iter_modules(pages.__path__):
        if module.name in OF_SEVERAL_CLUSTERS:
            continue
        found = import_module(f"{pages.__name__}.{module.name}")
        for route in getattr(found, "ROUTES", ()):
            assert isinstance(route, Route), route
            assert route.methods, f"{route.path} accepts all methods: name those that it has"
            declared |= {route.path} if "GET" in route.methods else set()
    assert len(declared) > 40
    with ConsoleInProcess(ConsoleSettings("127.0.0.1:1", NO_BROKER)) as console:
        assert set(console.paths) == declared
