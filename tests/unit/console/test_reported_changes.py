"""The page after a change waits until the brokers report the change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from barnabas.client.errors import ClientError
from barnabas.console.cluster_access import ClusterAccess
from barnabas.console.pages.change import Done, wait_until_reported
from barnabas.runtime.loop import new_loop


class BrokersThatLearn:
    """A cluster whose brokers return these answers in turn; an error is raised."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers: Iterator[bool | Exception] = iter(answers)
        self.questions = 0

    async def call(self, load: Any) -> bool:
        self.questions += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return bool(load(answer))


def wait(cluster: BrokersThatLearn, done: Done) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(wait_until_reported(cast("ClusterAccess", cluster), done))


@pytest.mark.parametrize(
    ("answers", "questions"),
    [
        ([True], 1),
        ([False, False, True, False], 3),
        # The page is shown in any case.
        ([False] * 100, 8),
        ([False, ClientError("no broker responds"), True], 2),
    ],
)
def test_the_next_page_waits_until_a_broker_reports_the_change(
    answers: list[bool | Exception], questions: int
) -> None:
    cluster = BrokersThatLearn(*answers)
    wait(cluster, Done("saved", "/telemetry", is_reported=cast("Any", bool)))
    assert cluster.questions == questions


def test_a_change_that_is_in_force_with_its_response_needs_no_wait() -> None:
    cluster = BrokersThatLearn()
    wait(cluster, Done("restarted", "/connect"))
    assert cluster.questions == 0
