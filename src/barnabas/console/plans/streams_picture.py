"""The topology of a streams group as a picture: topics and subtopologies, with arrows between.

The coordinator knows the topics that each subtopology reads and writes for repartitions, and its
changelogs. The topics that an application writes at its end are not described (KIP-1071).

Subtopologies are in layers from left to right: one is right of those whose repartition topics it
reads. A layer has its source topics, its subtopologies, and their changelogs. The drawing is SVG
without a style of its own, since the policy of the pages forbids it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.group_descriptions import Subtopology

Kind: TypeAlias = Literal["source", "subtopology", "repartition", "changelog"]

_WIDTH, _HEIGHT = 190, 34
_GAP_X, _GAP_Y, _MARGIN = 60, 16, 8
_LABEL_CHARACTERS = 26
# Boxes of a picture; larger topologies have their table only.
_BOXES_MAX = 150


class Box(NamedTuple):
    """A topic or a subtopology."""

    # Unique in the picture.
    key: tuple[str, str]
    kind: Kind
    # The name, cut in the middle if it is long, and the whole name.
    label: str
    name: str
    x: int
    y: int
    width: int = _WIDTH
    height: int = _HEIGHT


class Picture(NamedTuple):
    """Boxes and the paths of the arrows, as SVG has them."""

    boxes: Sequence[Box]
    arrows: Sequence[str]
    width: int
    height: int


def draw_topology(parts: Sequence[Subtopology]) -> Picture | None:
    """Return the picture of a topology; None if it is empty or too large."""
    if not parts:
        return None
    layer = _layers(parts)
    columns: dict[int, list[tuple[tuple[str, str], Kind]]] = {}
    edges: list[tuple[tuple[str, str], tuple[str, str]]] = []

    def place(column: int, key: tuple[str, str], kind: Kind) -> None:
        if all(key != other for rows in columns.values() for other, _ in rows):
            columns.setdefault(column, []).append((key, kind))

    for part in sorted(parts, key=lambda each: (layer[each.id], each.id)):
        # Each layer has two columns: the topics that it reads, and its subtopologies. Changelogs
        # and repartition topics stand in the next one.
        at = 2 * layer[part.id]
        own = ("subtopology", part.id)
        for name in part.source_topics:
            place(at, ("topic", name), "source")
        for name in part.repartition_source_topics:
            place(at, ("topic", name), "repartition")
        place(at + 1, own, "subtopology")
        for name in part.repartition_sink_topics:
            place(at + 2, ("topic", name), "repartition")
        for name in part.changelog_topics:
            place(at + 2, ("topic", name), "changelog")
        edges += [(("topic", name), own) for name in part.inputs]
        written = (*part.repartition_sink_topics, *part.changelog_topics)
        edges += [(own, ("topic", name)) for name in written]
    if sum(map(len, columns.values())) > _BOXES_MAX:
        return None
    boxes = _placed(columns)
    arrows = [_arrow(boxes[begin], boxes[end]) for begin, end in edges]
    width = max(each.x + each.width for each in boxes.values()) + _MARGIN
    height = max(each.y + each.height for each in boxes.values()) + _MARGIN
    return Picture(list(boxes.values()), arrows, width, height)


def _layers(parts: Sequence[Subtopology]) -> dict[str, int]:
    """Return the layer of each subtopology; a circle of repartitions ends after all parts."""
    writers = {name: part.id for part in parts for name in part.repartition_sink_topics}
    layer = {part.id: 0 for part in parts}
    for _ in parts:
        for part in parts:
            before = [writers[n] for n in part.repartition_source_topics if n in writers]
            wanted = max((layer[each] + 1 for each in before if each != part.id), default=0)
            layer[part.id] = min(max(layer[part.id], wanted), len(parts))
    return layer


def _placed(
    columns: Mapping[int, Iterable[tuple[tuple[str, str], Kind]]],
) -> dict[tuple[str, str], Box]:
    boxes = {}
    for index, number in enumerate(sorted(columns)):
        for row, (key, kind) in enumerate(columns[number]):
            x = _MARGIN + index * (_WIDTH + _GAP_X)
            y = _MARGIN + row * (_HEIGHT + _GAP_Y)
            name = f"subtopology {key[1]}" if kind == "subtopology" else key[1]
            boxes[key] = Box(key, kind, _shortened(name), name, x, y)
    return boxes


def _shortened(name: str) -> str:
    if len(name) <= _LABEL_CHARACTERS:
        return name
    half = (_LABEL_CHARACTERS - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _arrow(begin: Box, end: Box) -> str:
    """Return a curve from the right of a box to the left of another with a tip, as an SVG path."""
    x1, y1 = begin.x + begin.width, begin.y + begin.height // 2
    x2, y2 = end.x, end.y + end.height // 2
    bend = max(_GAP_X // 2, abs(x2 - x1) // 3)
    curve = f"M{x1},{y1}C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
    return f"{curve}m-8,-5l8,5l-8,5"
