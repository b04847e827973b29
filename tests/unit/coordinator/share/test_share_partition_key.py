"""Keys of share partitions: the text by which their coordinator is found."""

from __future__ import annotations

import pytest

from barnabas.coordinator.share.share_partition_state import SharePartitionKey

TOPIC_ID = bytes(range(16))
UUID = "AAECAwQFBgcICQoLDA0ODw"


def test_a_key_is_read_from_its_text() -> None:
    key = SharePartitionKey("my:group", TOPIC_ID, 7)
    assert key.coordinator_key == f"my:group:{UUID}:7"
    assert SharePartitionKey.parse(key.coordinator_key) == key


@pytest.mark.parametrize("rest", [":7", ":007", ":+7", ":7:", ":7::", "==:7"])
def test_other_texts_of_a_key_have_the_same_coordinator(rest: str) -> None:
    found = SharePartitionKey.parse(f"g:{UUID}{rest}")
    assert found.coordinator_key == f"g:{UUID}:7"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        f"g:{UUID}",
        f"g:{UUID}:",
        f":{UUID}:0",
        f" \t:{UUID}:0",
        f"g:{UUID}:x",
        f"g:{UUID}:1_0",
        f"g:{UUID}:2147483648",
        f"g:{UUID}:{'9' * 5000}",
        f"g:{UUID[:-1]}:0",
        "g:!:0",
    ],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SharePartitionKey.parse(text)
