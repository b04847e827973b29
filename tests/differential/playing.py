"""Plays a case, and repeats it if responses differ.

Apache Kafka responds before some changes have reached all of its threads, so that a response
differs once in some thousands of cases. A difference of Barnabas appears in the repetition too. The
summary of a run lists differences that appeared only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from differential.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

S = TypeVar("S", bound=Scene)


def play_case(
    new_scene: Callable[[str], S],
    name: str,
    play: Callable[[S], None],
    differs: Mapping[str, str],
    not_met: set[str],
) -> tuple[S, list[str]]:
    """Play a case in one version of its API.

    Args:
        new_scene: makes the scene with a name.
        name: the name of the case.
        play: plays the case.
        differs: the accepted differences.
        not_met: the patterns of `differs`. Patterns that match a difference are removed.

    Returns:
        The last scene, and lines that describe the unexpected differences.
    """
    scene = new_scene(name)
    play(scene)
    found = list(scene.unexpected(differs, not_met))
    if not found:
        return scene, found
    again = new_scene(f"{name}-again")
    play(again)
    found_again = list(again.unexpected(differs, not_met))
    if not found_again:
        again.pair.differed_once.append(f"{name} v{again.version} {found[0]}")
    return again, found_again
