"""The REST interface of a schema registry: Barnabas responds as Confluent's registry does.

Confluent's registry cannot be run here. `registry_calls` has its documented responses, and Apicurio
Registry has to give them too, but for known differences: a response that both registries give is
none that was made up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from barnabas.testing.registry_process import RegistryProcess
from differential.known_registry_differences import DIFFERENCES
from differential.registry_calls import CONVERSATIONS, Call, Conversation
from differential.registry_client import RegistryClient

_numbers = itertools.count(1)


def differences(url: str, conversation: Conversation) -> Iterator[tuple[Call, str]]:
    """Yield the calls whose response differs from that of Confluent's registry, and how."""
    client = RegistryClient(url, f"rest-{next(_numbers)}")
    try:
        for call in conversation.calls:
            found = client.difference(call, client.send(call))
            if found:
                yield call, found
    finally:
        for call in conversation.cleanup:
            client.send(call)
        client.close()


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.name)
def test_barnabas_responds_as_confluents_registry(
    conversation: Conversation, schema_registry: RegistryProcess
) -> None:
    assert not [found for _, found in differences(schema_registry.url, conversation)]


@pytest.mark.nightly
def test_apicurio_responds_the_same_but_for_known_differences(apicurio: str) -> None:
    found = {
        (conversation.name, call.request): shown
        for conversation in CONVERSATIONS
        for call, shown in differences(apicurio, conversation)
    }
    known = {
        (conversation.name, request)
        for pairs in DIFFERENCES.values()
        for conversation, request in pairs
    }
    assert not [shown for place, shown in found.items() if place not in known]
    assert not known - set(found)
