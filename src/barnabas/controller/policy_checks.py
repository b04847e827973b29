"""Validates new topics and changed configs by the operator's policies (KIP-108, KIP-133).

A policy is foreign code on the event loop. Its exceptions become errors of one topic or resource,
and a policy that takes long is logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.policies import AlterConfigMetadata, CreateTopicMetadata, PolicyViolationError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.resources import ConfigResource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.policies import AlterConfigPolicy, CreateTopicPolicy
    from barnabas.protocol.messages.topics import CreatableTopic
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

# A policy that takes longer than this is logged, ms.
_SLOW_MS = 20.0
_FAILED = "the policy of the cluster failed: see the log of the active controller"


class PolicyChecks:
    """The policies of a controller. Without policies, everything is allowed."""

    def __init__(
        self,
        clock: Clock,
        create_topic: CreateTopicPolicy | None = None,
        alter_config: AlterConfigPolicy | None = None,
    ) -> None:
        self._clock = clock
        self._create_topic = create_topic
        self._alter_config = alter_config

    def check_topic(
        self, topic: CreatableTopic, placed: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Raise Refusal if the policy does not allow a new topic.

        Args:
            topic: the topic as the request describes it.
            placed: broker ids of each partition.
            configs: the configs that the request gives.

        Raises:
            Refusal: POLICY_VIOLATION, or UNKNOWN_SERVER_ERROR if the policy failed.
        """
        policy = self._create_topic
        if policy is None:
            return
        is_assigned = bool(topic.assignments)
        metadata = CreateTopicMetadata(
            topic.name,
            None if is_assigned else len(placed),
            None if is_assigned else len(placed[0]),
            {index: list(brokers) for index, brokers in enumerate(placed)} if is_assigned else None,
            dict(configs),
        )
        self._validate(policy, lambda: policy.validate(metadata))

    def check_configs(self, resource: tuple[int, str], changes: Mapping[str, str | None]) -> None:
        """Raise Refusal if the policy does not allow a change of configs.

        Args:
            resource: type and name.
            changes: the new values; None for removed keys.

        Raises:
            Refusal: POLICY_VIOLATION, or UNKNOWN_SERVER_ERROR if the policy failed.
        """
        policy = self._alter_config
        if policy is None:
            return
        kind, name = resource
        changed = ConfigResource(ResourceType(kind), name)
        metadata = AlterConfigMetadata(changed, dict(changes))
        self._validate(policy, lambda: policy.validate(metadata))

    def _validate(self, policy: object, validate: Callable[[], None]) -> None:
        name = type(policy).__qualname__
        begun_ms = self._clock.monotonic_ms()
        try:
            validate()
        except PolicyViolationError as error:
            raise Refusal(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except Exception as error:
            _log.exception("Policy failed, so the request is refused: policy=%s", name)
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, _FAILED) from error
        finally:
            took_ms = self._clock.monotonic_ms() - begun_ms
            if took_ms > _SLOW_MS:
                _log.warning(
                    "Slow policy, the controller did nothing else meanwhile: policy=%s"
                    " duration_ms=%.0f",
                    name,
                    took_ms,
                )
