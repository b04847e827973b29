"""The two compared brokers, and the number of comparisons in the summary of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from differential.broker_pair import started_pair
from differential.scene import Pair
from summary import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAIR = pytest.StashKey[Pair]()


@pytest.fixture(scope="session")
def pair(
    kafka_jars: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    """Start Apache Kafka and Barnabas, both empty."""
    with started_pair(tmp_path_factory.mktemp("pair")) as made:
        request.config.stash[_PAIR] = made
        yield made


def pytest_sessionfinish(session: pytest.Session) -> None:
    pair = session.config.stash.get(_PAIR, None)
    if pair is None:
        return
    compared, played = sum(pair.compared.values()), sum(pair.played.values())
    apis = len(pair.played)
    session.config.stash[SUMMARY].append(
        f"differential: {played} cases x versions of {apis} APIs, {compared} responses compared "
        "with Apache Kafka 4.4.0"
    )
    if pair.differed_once:
        lines = "\n  ".join(pair.differed_once)
        session.config.stash[SUMMARY].append(f"differed once, and not again:\n  {lines}")
