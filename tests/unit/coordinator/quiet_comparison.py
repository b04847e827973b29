"""Compares the short way of heartbeats that change nothing with the general code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import pytest


def seen_both_ways(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, play: Callable[[], list[object]]
) -> list[object]:
    """Play a storm twice, and assert that the results are the same without the short way.

    Args:
        monkeypatch: the fixture.
        module: the module that calls the short way.
        name: its function, which returns None for other heartbeats.
        play: plays the storm from its start, and returns what is to be compared.
    """
    short_way: Callable[..., object] = getattr(module, name)
    quiet = 0

    def counting(*given: object) -> object:
        nonlocal quiet
        response = short_way(*given)
        quiet += response is not None
        return response

    with monkeypatch.context() as patch:
        patch.setattr(module, name, counting)
        seen = play()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, lambda *_: None)
        assert play() == seen
    assert quiet > 10
    return seen
