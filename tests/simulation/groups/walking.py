"""Shared parts of the walks of share groups and consumer groups."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

# Virtual seconds of a walk.
SECONDS = 8.0
Action = Callable[[], None]


def chosen(actions: Sequence[Action], names: Sequence[str]) -> list[Action]:
    """Return the actions with these names; all if there are no names."""
    return [action for action in actions if not names or action.__name__ in names]


def play_seeds(make_walk: Callable[[int, str], Any], summary: Callable[[Any], str]) -> None:
    """Run the walks of the command line (FIRST LAST [STYLE] [SECONDS]); print their verdicts."""
    logging.disable()
    first, last, *rest = sys.argv[1:]
    for seed in range(int(first), int(last) + 1):
        walk = make_walk(seed, rest[0] if rest else "mixed")
        verdict = walk.play(float(rest[1]) if len(rest) > 1 else SECONDS)
        print(f"seed {seed}: {summary(walk.world)}, {verdict}", flush=True)
        if not verdict.is_clean:
            print("\n".join(walk.log), flush=True)
