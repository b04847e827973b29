"""Interfaces of the policies that a cluster's operator writes (KIP-108, KIP-133).

The active controller calls a policy for each new topic, or for each resource whose configs change.
The keys `create.topic.policy.class.name` and `alter.config.policy.class.name` name the classes, as
`package.module:Class`. docs/security.md has an example.

A policy runs on the event loop of the controller, which serves no other request meanwhile. It must
return within milliseconds: it must not read files, use the network or wait. It may be called
several times for one request, also for a request that is only validated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

# `help` and `inspect.signature` evaluate the types of the fields of a Struct.
from collections.abc import Mapping, Sequence  # noqa: TC003 - see above

from msgspec import Struct

from barnabas.protocol.resources import ConfigResource  # noqa: TC001 - see above

__all__ = [
    "AlterConfigMetadata",
    "AlterConfigPolicy",
    "CreateTopicMetadata",
    "CreateTopicPolicy",
    "Policy",
    "PolicyViolationError",
]


class PolicyViolationError(Exception):
    """Raised by a policy that refuses a request: POLICY_VIOLATION (44), with this message."""


class CreateTopicMetadata(Struct, frozen=True):
    """A new topic, after all other checks. Either the first two numbers are None, or the last."""

    topic: str
    # The defaults of the controller are filled in. None if the request assigns replicas.
    num_partitions: int | None
    replication_factor: int | None
    # Broker ids of each partition, if the request assigns replicas; else None.
    replicas_assignments: Mapping[int, Sequence[int]] | None
    # Only the configs that the request gives.
    configs: Mapping[str, str]


class AlterConfigMetadata(Struct, frozen=True):
    """Changes of the configs of one resource, after all other checks."""

    resource: ConfigResource
    # Only the keys that change; of a broker also keys whose value stays. The value None removes a
    # key. Keys that AlterConfigs removes because the request does not name them are left out.
    configs: Mapping[str, str | None]


class Policy:
    """What both kinds of policy have: they are configured once, and closed at the end."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read the properties of the node, which may contain keys of the policy itself.

        Called once at the start. An exception prevents the start of the node.

        Args:
            configs: all given properties as text.
        """

    def close(self) -> None:
        """Release resources when the node stops."""


class CreateTopicPolicy(Policy, ABC):
    """Decides which topics may be created; also called for topics that are created automatically.

    Topics of the cluster itself, such as __consumer_offsets, are no exception.
    """

    @abstractmethod
    def validate(self, request_metadata: CreateTopicMetadata) -> None:
        """Return if the topic may be created.

        Raises:
            PolicyViolationError: the topic must not be created; the client receives the message.
                With any other exception, the client receives UNKNOWN_SERVER_ERROR, and the node
                logs the exception.
        """


class AlterConfigPolicy(Policy, ABC):
    """Decides which configs of topics, brokers, groups and client metrics may be changed.

    As in Kafka, it also decides about the configs of a new topic, before the other policy does.
    """

    @abstractmethod
    def validate(self, request_metadata: AlterConfigMetadata) -> None:
        """Return if the configs of the resource may be changed.

        Raises:
            PolicyViolationError: nothing must change; the client receives the message. With any
                other exception, the client receives UNKNOWN_SERVER_ERROR, and the node logs the
                exception.
        """
