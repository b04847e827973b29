"""Describes topics for tests of Java applications, by librdkafka."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource

# Timeout for requests that hang.
TIMEOUT_S = 90


def topic_configs(bootstrap: str, topic: str) -> dict[str, str]:
    """Return all configs of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {key: entry.value for key, entry in future.result(TIMEOUT_S).items()}
