"""The user tag of metrics has the same text as in Kafka."""

from __future__ import annotations

import pytest

from barnabas.server.quotas.sanitized_user import sanitized_user


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("alice", "alice"),
        ("a.b-c_D9", "a.b-c_D9"),
        ("CN=me,OU=Ünit", "CN%3Dme%2COU%3D%C3%9Cnit"),
        ("a b*c~d+e/f", "a%20b%2Ac%7Ed%2Be%2Ff"),
        ("", ""),
    ],
)
def test_other_characters_are_percent_encoded(name: str, tag: str) -> None:
    assert sanitized_user(name) == tag
