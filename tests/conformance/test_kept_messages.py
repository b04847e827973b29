"""Nodes of this version and of earlier releases understand each other's messages and records."""

from __future__ import annotations

import pytest

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.server.startup.features import SUPPORTED_FEATURES
from conformance.kept_messages import KeptMessages, advertised, described, kept_messages
from unit.protocol.protocol_values import message_classes, record_classes

KEPT = kept_messages()
CLASSES = {each.__name__: each for each in message_classes()}

of_each_release = pytest.mark.parametrize("kept", KEPT, ids=[each.release for each in KEPT])


def test_there_are_messages_of_a_release() -> None:
    assert KEPT
    assert len(KEPT[0].messages) > 700


@of_each_release
def test_messages_of_a_release_have_the_same_values_and_are_written_alike(
    kept: KeptMessages,
) -> None:
    for message in kept.messages:
        where = f"{message.name} v{message.version}"
        found = decode(CLASSES[message.name], message.version, message.encoded)
        assert described(found, message.version) == message.values, where
        # Nodes of the release read in this version what they have written themselves.
        assert encode_bytes(found, message.version) == message.encoded, where


@of_each_release
def test_nodes_of_a_release_find_a_common_version_of_each_api(kept: KeptMessages) -> None:
    now = advertised()
    for listener, apis in kept.advertised.items():
        for name, (first, last) in apis.items():
            assert name in now[listener], f"{listener}: {name} is not served any more"
            first_now, last_now = now[listener][name]
            assert max(first, first_now) <= min(last, last_now), f"{listener}: {name}"


@of_each_release
def test_nodes_of_this_version_join_a_cluster_at_the_levels_of_a_release(
    kept: KeptMessages,
) -> None:
    for name, (lowest, highest) in kept.features.items():
        assert name in SUPPORTED_FEATURES
        lowest_now, highest_now = SUPPORTED_FEATURES[name]
        assert lowest_now <= lowest, name
        assert highest_now >= highest, name


@of_each_release
def test_each_version_of_a_record_that_a_release_reads_is_known(kept: KeptMessages) -> None:
    read: dict[str, set[int]] = {}
    for message in kept.messages:
        read.setdefault(message.name, set()).add(message.version)
    for cls in record_classes():
        if cls.__name__ in read:
            first, last = cls.__versions__
            assert read[cls.__name__] <= set(range(first, last + 1)), cls.__name__
