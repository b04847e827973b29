"""What a broker may need later is imported in the background."""

from __future__ import annotations

import importlib.util
import logging

import pytest

from barnabas.server.handlers.controller_table import CONTROLLER_APIS
from barnabas.server.handlers.table import SERVED_APIS
from barnabas.server.preload import Preloader, needed_modules
from barnabas.sim.world import sim_runtime


def test_every_module_exists_and_every_handler_is_among_them() -> None:
    names = needed_modules()
    assert all(importlib.util.find_spec(name) is not None for name in names)
    for api in (*SERVED_APIS.values(), *CONTROLLER_APIS.values()):
        assert f"barnabas.server.handlers.{api.module}" in names
    assert "barnabas.protocol.messages.fetch" in names


def test_a_module_that_cannot_be_imported_is_tried_again_behind_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, runtime = sim_runtime(1)
    tried: list[str] = []

    def import_module(name: str) -> None:
        tried.append(name)
        if tried.count("b") == 1 and name == "b":
            raise OSError(24, "Too many open files")

    with caplog.at_level(logging.INFO):
        Preloader(runtime.timer, ["a", "b", "c"], import_module).start()
        assert world.run_until(lambda: "Imported all" in caplog.text)
    assert tried == ["a", "b", "c", "b"]
    assert "Too many open files" in caplog.text
