"""Requests without responses: they end when the output buffer of the connection drains."""

from __future__ import annotations

from typing import Any

from barnabas.client.connections.connections import OutputGauge


class Handler:
    """Accepts all events."""

    def on_connected(self, _stream: object) -> None:
        pass

    def get_buffer(self, _size: int) -> bytearray:
        return bytearray(1)

    def on_received(self, _count: int) -> None:
        pass

    def on_writable_changed(self, _writable: bool) -> None:
        pass

    def on_closed(self, _error: object) -> None:
        pass


class Setup:
    """A connection through a gauge; the stream calls `inner`."""

    def __init__(self) -> None:
        self.handler: Any = Handler()
        sockets: Any = self
        self.gauge = OutputGauge(sockets)
        self.inner: Any = None
        self.told: list[bool] = []
        self.gauge.connect("h", 1, self.handler, lambda _error: None, 1.0)
        self.inner.on_connected(None)

    def connect(self, _host: str, _port: int, handler: Any, *_rest: object) -> None:
        self.inner = handler

    def wait(self) -> None:
        self.gauge.when_drained(self.handler, self.told.append)


def test_a_connection_that_is_not_full_is_reported_immediately() -> None:
    setup = Setup()
    setup.wait()
    assert setup.told == [True]


def test_a_full_connection_is_waited_for() -> None:
    setup = Setup()
    setup.inner.on_writable_changed(False)
    setup.wait()
    assert not setup.told
    setup.inner.on_writable_changed(True)
    assert setup.told == [True]


def test_a_closed_connection_is_reported_to_current_and_later_waiters() -> None:
    setup = Setup()
    setup.inner.on_writable_changed(False)
    setup.wait()
    setup.inner.on_closed(None)
    setup.wait()
    assert setup.told == [False, False]


def test_a_connection_that_was_never_made_is_reported_as_closed() -> None:
    setup = Setup()
    other: Any = Handler()
    setup.gauge.when_drained(other, setup.told.append)
    assert setup.told == [False]
