"""The topology of a streams group as a picture."""

from __future__ import annotations

from barnabas.client.admin.group_descriptions import Subtopology
from barnabas.console.plans.streams_picture import draw_topology

FIRST = Subtopology("0", ("in",), ("split",), (), ())
SECOND = Subtopology("1", ("side",), (), ("split",), ("counts-changelog",))


def test_a_subtopology_stands_right_of_the_one_whose_topic_it_reads() -> None:
    picture = draw_topology([SECOND, FIRST])
    assert picture is not None
    x = {box.name: box.x for box in picture.boxes}
    assert x["in"] < x["subtopology 0"] < x["split"] < x["subtopology 1"] < x["counts-changelog"]
    kinds = {box.name: box.kind for box in picture.boxes}
    assert kinds["split"] == "repartition"
    assert kinds["counts-changelog"] == "changelog"
    assert len(picture.arrows) == 5


def test_boxes_stay_inside_of_the_picture_and_do_not_overlap() -> None:
    wide = Subtopology("0", tuple(f"t{n}" for n in range(20)), (), (), ("c",))
    picture = draw_topology([wide])
    assert picture is not None
    places = {(box.x, box.y) for box in picture.boxes}
    assert len(places) == len(picture.boxes) == 22
    assert all(box.x + box.width <= picture.width for box in picture.boxes)
    assert all(box.y + box.height <= picture.height for box in picture.boxes)


def test_a_circle_of_repartition_topics_ends() -> None:
    one = Subtopology("0", (), ("a",), ("b",), ())
    other = Subtopology("1", (), ("b",), ("a",), ())
    picture = draw_topology([one, other])
    assert picture is not None
    assert {box.name for box in picture.boxes} == {"a", "b", "subtopology 0", "subtopology 1"}


def test_long_names_are_cut_in_the_middle_and_stay_whole_in_the_title() -> None:
    name = "application-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    picture = draw_topology([Subtopology("0", ("in",), (), (), (name,))])
    assert picture is not None
    [box] = [each for each in picture.boxes if each.name == name]
    assert len(box.label) < 28
    assert "…" in box.label


def test_no_topology_and_a_huge_one_have_no_picture() -> None:
    assert draw_topology([]) is None
    assert draw_topology([Subtopology("0", tuple(map(str, range(500))), (), (), ())]) is None
