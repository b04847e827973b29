"""Hosts of access control entries, in Java's form of addresses."""

from __future__ import annotations

import pytest

from barnabas.metadata.acl_decision import (
    HostRangeError,
    canonical_address,
    matches_host,
    parse_range,
)


@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::a0", "2001:db8:0:0:0:0:0:a0"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("client-1", "client-1"),
    ],
)
def test_addresses_have_the_form_that_java_writes(address: str, canonical: str) -> None:
    assert canonical_address(address) == canonical


def test_an_entry_may_shorten_an_ipv6_address() -> None:
    assert matches_host("::1", "0:0:0:0:0:0:0:1")
    assert matches_host("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1")
    assert not matches_host("::2", "0:0:0:0:0:0:0:1")


def test_a_range_of_one_family_does_not_cover_the_other() -> None:
    assert matches_host("2001:db8::/32", "2001:db8:0:0:0:0:0:1")
    assert not matches_host("::/0", "10.0.0.1")
    assert not matches_host("0.0.0.0/0", "0:0:0:0:0:0:0:1")


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0/33", "10.0.0/8", "300.0.0.0/8", "10.0.0.0/", "/8", "10.0.0.0/8/8", "::/129", "::/x"],
)
def test_text_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(HostRangeError):
        parse_range(text)


def test_leading_zeros_of_a_range_are_accepted_as_in_kafka() -> None:
    assert matches_host("010.000.000.000/08", "10.9.9.9")
