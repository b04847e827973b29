"""Addresses in configurations and arguments."""

from __future__ import annotations

import pytest

from barnabas.server.configs.endpoints import Endpoint, parse_address, parse_endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://host:0", Endpoint("PLAINTEXT", "host", 0)),
        ("PLAINTEXT://:9092", Endpoint("PLAINTEXT", "", 9092)),
        ("PLAINTEXT://[::1]:9092", Endpoint("PLAINTEXT", "::1", 9092)),
    ],
)
def test_an_endpoint_is_parsed_and_formatted(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text) == expected
    assert parse_endpoint(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "host:9092", "://h:1", "A://h", "A://h:x", "A://h:70000", "A://::1:9092", "A://h:-1"],
)
def test_text_that_is_no_endpoint_returns_none(text: str) -> None:
    assert parse_endpoint(text) is None


def test_an_address_has_a_host_and_a_port() -> None:
    assert parse_address("h:1") == ("h", 1)
    assert parse_address("h") is None
