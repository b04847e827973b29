"""The generator of endless waits reaches the limit of share sessions of a real broker."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from fuzz.endless_waits import leave

SESSIONS = 5
CONNECTIONS = 20


@pytest.mark.conformance
def test_the_broker_refuses_sessions_while_and_after_clients_leave() -> None:
    settings = {
        "group.share.max.share.sessions": str(SESSIONS),
        "group.share.max.size": str(SESSIONS),
    }
    with BrokerProcess(settings=settings) as broker:
        for _ in range(2):
            error = leave(broker.bootstrap, CONNECTIONS, SESSIONS)
            assert error == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert "Traceback" not in broker.log()
