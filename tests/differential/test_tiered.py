"""The same requests for tiered topics to Apache Kafka 4.4 and to Barnabas get equal responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from differential.tiered_disable_cases import CASES
from differential.tiered_pair import started_tiered_pair
from selection import nightly_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.case import Case
    from differential.scene import Pair

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def tiered_pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    kafka_jars("kafka-tiered")
    with started_tiered_pair(tmp_path_factory.mktemp("tiered")) as made:
        yield made


@pytest.mark.parametrize("each", nightly_unless(lambda each: not each.is_nightly, CASES), ids=str)
def test_the_responses_are_equal(
    each: Case, tiered_pair: Pair, pytestconfig: pytest.Config
) -> None:
    found = each.run(tiered_pair, every_version=pytestconfig.option.nightly)
    assert not found, "\n" + "\n".join(found)
