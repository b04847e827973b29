"""`expect`: arguments that contradict each other, before Spark sees the rows."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.spark.pipelines.expectations import expect

NONE: Any = None


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a", {"otherwise": "skip"}, "otherwise='skip'; expected one of"),
        ("", {}, "is no name of an expectation"),
        ("a/b", {}, "is no name of an expectation"),
        ("a", {"otherwise": "quarantine"}, "'a': otherwise='quarantine' needs quarantine="),
        (
            "a",
            {"otherwise": "quarantine", "quarantine": "bad"},
            "'a': .* for the functions of a pipeline that `barnabas pipeline run` runs",
        ),
        ("a", {"quarantine": "bad"}, "otherwise='quarantine' needs quarantine="),
    ],
)
def test_arguments_without_a_meaning_are_refused(
    name: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        expect(NONE, name, NONE, **given)
