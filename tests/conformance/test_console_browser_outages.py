"""A page whose broker stops and comes back, as a user of Chromium sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from tools.chromium import IS_INSTALLED, Chromium
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "outages-kept"


def test_a_page_keeps_its_last_data_while_no_broker_responds(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        with Client(broker.bootstrap) as client:
            client.create_topic(TOPIC, 1, 1)
        with (
            running_console(broker.bootstrap, "--interval", "1") as running,
            Chromium() as browser,
        ):
            user = ConsoleUser(browser, running.url)

            def sees(*patterns: str) -> bool:
                user.open("/topics")
                text = user.text()
                return all(each in text for each in patterns)

            eventually(lambda: sees(TOPIC))
            broker.stop()
            eventually(lambda: sees("No broker responds since", "was known at", TOPIC))
            broker.restart()
            eventually(lambda: sees(TOPIC) and "No broker responds" not in user.text())
