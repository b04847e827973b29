"""Pages while no broker of the cluster responds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.console.cluster_access import ClusterDownError, LinkSupport, Reachability
from barnabas.console.last_pages import LastPage, LastPages
from barnabas.console.settings import ClusterSettings, ConsoleSettings
from barnabas.runtime.clock import SystemClock
from barnabas.runtime.loop import new_loop
from barnabas.sim.clock import SimClock, SimScheduler
from console_in_process import NO_BROKER, ConsoleInProcess, table_rows
from waiting import eventually

NOWHERE = "127.0.0.1:1"


def run(main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_cluster_that_never_responded_is_down_after_the_first_probe() -> None:
    found = Reachability(NOWHERE, SystemClock())
    assert not found.is_down
    found.fail("refused")
    assert found.is_down
    assert "refused" in str(found.down_error())


def test_one_late_answer_of_a_busy_broker_is_no_outage() -> None:
    scheduler = SimScheduler()
    found = Reachability(NOWHERE, SimClock(scheduler))
    found.succeed(3)
    up_ms = found.up_since_ms
    scheduler.run_for(5_000)
    found.succeed(3)
    seen_ms = found.seen_ms
    found.fail("late")
    assert not found.is_down
    found.fail("late")
    # The outage began when the brokers responded last.
    assert (found.is_down, found.down_since_ms, found.up_since_ms) == (True, seen_ms, None)
    scheduler.run_for(5_000)
    found.succeed(2)
    assert (found.is_down, found.brokers, found.error) == (False, 2, "")
    assert up_ms is not None
    assert found.up_since_ms == up_ms + 10_000


def test_a_page_that_waits_for_brokers_ends_when_they_are_known_to_be_down() -> None:
    async def main() -> None:
        found = Reachability(NOWHERE, SystemClock())
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(found.unless_down(never))
        await asyncio.sleep(0)
        found.fail("refused")
        with pytest.raises(ClusterDownError, match="refused"):
            await waiting

    run(main)


def test_a_request_has_its_result_or_error_while_brokers_respond() -> None:
    async def main() -> None:
        found = Reachability(NOWHERE, SystemClock())
        loop = asyncio.get_running_loop()
        done, failed = loop.create_future(), loop.create_future()
        done.set_result(7)
        failed.set_exception(KeyError("a"))
        assert await found.unless_down(done) == 7
        with pytest.raises(KeyError):
            await found.unless_down(failed)

    run(main)


@pytest.mark.parametrize("answer", [True, False])
def test_a_connection_asks_once_whether_there_may_be_links(answer: bool) -> None:
    links, answers = LinkSupport(), iter([None, answer, not answer])
    for _ in range(5):
        links.learn(lambda: next(answers))
    assert links.may_have is answer
    assert list(answers) == [not answer]


def test_another_connection_asks_again_whether_there_may_be_links() -> None:
    links = LinkSupport()
    links.learn(lambda: True)
    links.begin()
    links.learn(lambda: None)
    assert links.may_have
    links.learn(lambda: False)
    assert not links.may_have


@pytest.fixture
def console() -> Iterator[ConsoleInProcess]:
    # A page would wait for a minute.
    settings = ConsoleSettings(NOWHERE, {**NO_BROKER}, timeout=60.0)
    with ConsoleInProcess(settings) as running:
        eventually(lambda: running.console.cluster.reachability.is_down)
        yield running


def test_a_page_without_earlier_data_says_what_is_tried_and_since_when(
    console: ConsoleInProcess,
) -> None:
    answer = console.get("/topics")
    assert answer.status == 503
    assert "No broker responds since 20" in answer.text
    assert f"{NOWHERE} Connection refused" in answer.text
    assert 'http-equiv="refresh"' in answer.text


def test_pages_that_need_no_broker_have_the_banner_and_are_not_loaded_again(
    console: ConsoleInProcess,
) -> None:
    text = console.get("/produce").text
    assert "No broker responds since 20" in text
    assert 'http-equiv="refresh"' not in text


def kept(size: int) -> LastPage:
    return LastPage("t", {}, size, 0)


def test_the_number_and_the_size_of_kept_pages_are_bounded() -> None:
    pages = LastPages()
    for number in range(300):
        pages.keep(number, kept(10))
    assert [pages.find(each) is None for each in (0, 99, 100, 299)] == [True, True, False, False]
    pages.keep("large", kept(16 * 1024 * 1024 - 5))
    assert pages.find(299) is None
    assert pages.find("large") is not None
    pages.keep("too large", kept(17 * 1024 * 1024))
    assert pages.find("too large") is None
    pages.keep("after", kept(5))
    assert pages.find("after") is not None


@pytest.fixture
def two() -> Iterator[ConsoleInProcess]:
    clusters = tuple(ClusterSettings(name, NOWHERE, NO_BROKER) for name in ("east", "west"))
    settings = ConsoleSettings("", {}, clusters=clusters, timeout=60.0, allow_changes=True)
    with ConsoleInProcess(settings) as running:
        for each in running.site.consoles:
            eventually(lambda each=each: each.cluster.reachability.is_down)
        yield running


def test_several_clusters_have_a_list_and_pages_below_their_names(two: ConsoleInProcess) -> None:
    front = two.get("/").text
    assert front.count("no broker responds") == 2
    assert 'href="/east/"' in front
    assert list(table_rows(front)) == ["east", "west"]
    assert list(table_rows(two.get("/", sort="-name").text)) == ["west", "east"]
    assert list(table_rows(two.get("/", q="WES").text)) == ["west"]
    page = two.get("/west/topics")
    assert page.status == 503
    assert 'href="/west/groups"' in page.text
    assert 'href="/static/console.css' in page.text
    # The switcher leads to all clusters.
    assert 'href="/east/"' in page.text
    assert two.get("/absent/topics").status == 404
    assert two.get("/west/absent").status == 404


def test_a_login_on_the_page_of_a_cluster_leads_back_to_it(two: ConsoleInProcess) -> None:
    answer = two.post("/west/login", password=two.passwords[-1], next="/produce?topic=a")
    assert answer.headers["location"] == "/west/produce?topic=a"
    two.cookie = answer.headers["set-cookie"].split(";")[0]
    # The password is that of the whole console.
    assert "Log out" in two.get("/east/produce").text
    assert "Log out" in two.get("/").text
    form = two.get("/east/produce")
    assert 'action="/east/produce"' in form.text
    # A failed change leads back to the page of its form.
    answer = two.post("/east/produce", csrf=form.csrf, here="/produce", topic="a", value="b")
    assert answer.headers["location"] == "/east/produce"
