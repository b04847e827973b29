"""The policies of Policies.java in Python: certain words in a request cause an error."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas import (
    AlterConfigMetadata,
    AlterConfigPolicy,
    CreateTopicMetadata,
    CreateTopicPolicy,
    PolicyViolationError,
)


def judge(request: str, metadata: str) -> None:
    if "refused" in request or "111111" in request:
        raise PolicyViolationError(metadata)
    if "broken" in request or "222222" in request:
        raise RuntimeError(metadata)


def java_text(values: Mapping[object, object] | None) -> str:
    """Return a map in Java's text form."""
    if values is None:
        return "null"
    pairs = sorted(values.items(), key=lambda pair: str(pair[0]))
    return "{" + ", ".join(f"{name}={java_value(value)}" for name, value in pairs) + "}"


def java_value(value: object) -> str:
    return "null" if value is None else str(value)


class Topics(CreateTopicPolicy):
    def configure(self, configs: Mapping[str, str]) -> None:
        self.word = configs["test.word"]

    def validate(self, request_metadata: CreateTopicMetadata) -> None:
        made = request_metadata
        words = [
            self.word,
            made.topic,
            java_value(made.num_partitions),
            java_value(made.replication_factor),
            java_text(made.replicas_assignments),  # type: ignore[arg-type]
            java_text(made.configs),  # type: ignore[arg-type]
        ]
        judge(made.topic, " ".join(words))


class Configs(AlterConfigPolicy):
    def validate(self, request_metadata: AlterConfigMetadata) -> None:
        values = java_text(request_metadata.configs)  # type: ignore[arg-type]
        kind, name = request_metadata.resource
        judge(values, f"{kind.name} {name} {values}")
