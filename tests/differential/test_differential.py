"""The same requests to Apache Kafka 4.4 and to Barnabas get equal responses, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from differential.all_cases import CASES
from selection import nightly_unless

if TYPE_CHECKING:
    from differential.case import Case
    from differential.scene import Pair

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("each", nightly_unless(lambda each: not each.is_nightly, CASES), ids=str)
def test_the_responses_are_equal(each: Case, pair: Pair, pytestconfig: pytest.Config) -> None:
    found = each.run(pair, every_version=pytestconfig.option.nightly)
    assert not found, "\n" + "\n".join(found)
