"""What tests of Java applications ask of topics, by librdkafka."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, ConfigResource

# A limit for what hangs.
TIMEOUT_S = 90


def topic_configs(bootstrap: str, topic: str) -> dict[str, str]:
    """All configs of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {key: entry.value for key, entry in future.result(TIMEOUT_S).items()}
