"""Clients of groups: their addresses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.server.dispatch.request import RequestContext
from barnabas.server.handlers.groups.members import client_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1:9092", "/10.0.0.1"),
        ("[::ffff:10.0.0.1]:9092", "/10.0.0.1"),
        ("[2001:db8::1]:9092", "/2001:db8::1"),
    ],
)
def test_an_address_has_no_port_and_a_mapped_one_is_that_of_ipv4(peer: str, host: str) -> None:
    connection: Any = SimpleNamespace(peer=peer)
    unused: Any = None
    context = RequestContext(connection, unused, (11, 0, 1, None, 0), 0, unused, unused)
    assert client_of(context) == ClientIdentity("", host)
