"""The APIs that the active controller serves: one row each, with all that differs between them.

A new API is a row here and the function or class that turns its request into records. Brokers
forward the requests of clients by a row of `server/dispatch/served_apis.py`.

`Controls` are the parts of a controller that turn requests into records, each for one area.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.acls import AclControl, refuse_create_acls, refuse_delete_acls
from barnabas.controller.brokers import BrokerControl, BrokerSessions, allocate_producer_ids
from barnabas.controller.client_quotas import alter_client_quotas, refuse_alter_client_quotas
from barnabas.controller.config_changes import (
    ConfigControl,
    refuse_alter_configs,
    refuse_incremental_alter_configs,
)
from barnabas.controller.config_rules import TopicConfigs
from barnabas.controller.credentials import (
    TokenControl,
    alter_scram_credentials,
    refuse_alter_scram_credentials,
    refuse_create_token,
)
from barnabas.controller.features import FeatureControl, refuse_update_features
from barnabas.controller.partitions.directories import DirectoryControl
from barnabas.controller.partitions.elections import (
    Elections,
    LeaderElectionControl,
    refuse_elect_leaders,
)
from barnabas.controller.partitions.in_sync_replicas import IsrControl
from barnabas.controller.partitions.new_partitions import (
    PartitionControl,
    refuse_create_partitions,
)
from barnabas.controller.partitions.placement import StripedPlacer
from barnabas.controller.partitions.reassignments import (
    ReassignmentControl,
    refuse_alter_reassignments,
    refuse_list_reassignments,
)
from barnabas.controller.partitions.topics import (
    TopicControl,
    refuse_create_topics,
    refuse_delete_topics,
)
from barnabas.controller.registrations import (
    RegistrationControl,
    UnregistrationControl,
    register_controller,
    unregister_controller,
)
from barnabas.controller.result import refuse_as_a_whole
from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.policy_checks import PolicyChecks
    from barnabas.controller.result import ControllerResult, ControllerView, Refusal
    from barnabas.metadata.broker_registration import SupportedLevels
    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.rng import Rng

    # Turns a request into a result, at once or in steps.
    Serve = Callable[
        [ControllerView, Any], ControllerResult[Any] | Generator[None, None, ControllerResult[Any]]
    ]
    # Returns the error response to a request, or makes it in steps.
    Refuse = Callable[[Any, Refusal], Message | Generator[None, None, Message]]


class Controls(msgspec.Struct, frozen=True):
    """One object per area. `ApiControl` rows name the methods that serve requests."""

    acls: AclControl
    topics: TopicControl
    partitions: PartitionControl
    configs: ConfigControl
    directories: DirectoryControl
    brokers: BrokerControl
    registrations: RegistrationControl
    isr: IsrControl
    features: FeatureControl
    leader_elections: LeaderElectionControl
    reassignments: ReassignmentControl
    unregistration: UnregistrationControl
    tokens: TokenControl
    # Times of the brokers' last heartbeats. `brokers` and `registrations` change them.
    sessions: BrokerSessions


def make_controls(
    config: ControllerConfig,
    driver: RaftDriver,
    rng: Rng,
    supported_features: Mapping[str, SupportedLevels],
    policies: PolicyChecks,
) -> Controls:
    """Create the parts of a controller.

    Args:
        config: the controller's configuration.
        driver: the replica of the metadata quorum, for kraft.version.
        rng: chooses the first broker of a placement, and the ids of topics and tokens.
        supported_features: levels that this controller supports; empty if only the brokers' levels
            matter.
        policies: decide which topics and configs are allowed.
    """
    topic_configs = TopicConfigs(config)
    placer = StripedPlacer(rng)
    sessions = BrokerSessions(config.broker.integer("broker.session.timeout.ms"), config.node_id)
    elections = Elections(topic_configs, sessions.suspected)
    directories = DirectoryControl(elections)
    brokers = BrokerControl(elections, directories, sessions)
    return Controls(
        acls=AclControl(rng, has_authorizer=config.has_authorizer),
        topics=TopicControl(config, topic_configs, placer, rng, policies),
        partitions=PartitionControl(placer),
        configs=ConfigControl(config, topic_configs, policies),
        directories=directories,
        brokers=brokers,
        registrations=RegistrationControl(config, elections, sessions, brokers),
        isr=IsrControl(elections),
        features=FeatureControl(config, supported_features, driver),
        leader_elections=LeaderElectionControl(elections),
        reassignments=ReassignmentControl(elections),
        unregistration=UnregistrationControl(elections),
        tokens=TokenControl(config, rng, driver.log_dependencies.clock),
        sessions=sessions,
    )


class ApiControl(msgspec.Struct, frozen=True):
    """An API and the functions that serve it."""

    # Returns the function that serves a request.
    serve: Callable[[Controls], Serve]
    # Makes the error response for a request that is not served as a whole.
    refuse: Refuse = refuse_as_a_whole
    # Whether requests create or delete partitions, which the partition mutation quota limits.
    mutates_partitions: bool = False
    # Whether `timeout_ms` of the request limits the time until the response. Kafka ignores the
    # timeout of two APIs.
    has_timeout: bool = True
    # Whether requests change broker sessions. The timers of sessions are set again afterwards.
    changes_sessions: bool = False


API_CONTROLS: Mapping[int, ApiControl] = {
    ApiKey.CREATE_TOPICS: ApiControl(
        lambda controls: controls.topics.create, refuse_create_topics, mutates_partitions=True
    ),
    ApiKey.DELETE_TOPICS: ApiControl(
        lambda controls: controls.topics.delete, refuse_delete_topics, mutates_partitions=True
    ),
    ApiKey.CREATE_ACLS: ApiControl(lambda controls: controls.acls.create, refuse_create_acls),
    ApiKey.DELETE_ACLS: ApiControl(lambda controls: controls.acls.delete, refuse_delete_acls),
    ApiKey.ALTER_CONFIGS: ApiControl(lambda controls: controls.configs.alter, refuse_alter_configs),
    ApiKey.CREATE_PARTITIONS: ApiControl(
        lambda controls: controls.partitions.create,
        refuse_create_partitions,
        mutates_partitions=True,
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiControl(
        lambda controls: controls.tokens.create, refuse_create_token
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiControl(lambda controls: controls.tokens.renew),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiControl(lambda controls: controls.tokens.expire),
    ApiKey.ELECT_LEADERS: ApiControl(
        lambda controls: controls.leader_elections.elect, refuse_elect_leaders
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiControl(
        lambda controls: controls.configs.alter_incrementally, refuse_incremental_alter_configs
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiControl(
        lambda controls: controls.reassignments.alter, refuse_alter_reassignments
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiControl(
        lambda controls: controls.reassignments.list, refuse_list_reassignments, has_timeout=False
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiControl(
        lambda _: alter_client_quotas, refuse_alter_client_quotas
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiControl(
        lambda _: alter_scram_credentials, refuse_alter_scram_credentials
    ),
    ApiKey.ALTER_PARTITION: ApiControl(lambda controls: controls.isr.alter),
    ApiKey.UPDATE_FEATURES: ApiControl(
        lambda controls: controls.features.update, refuse_update_features, has_timeout=False
    ),
    ApiKey.BROKER_REGISTRATION: ApiControl(
        lambda controls: controls.registrations.register, changes_sessions=True
    ),
    ApiKey.BROKER_HEARTBEAT: ApiControl(
        lambda controls: controls.brokers.heartbeat, changes_sessions=True
    ),
    ApiKey.UNREGISTER_BROKER: ApiControl(lambda controls: controls.unregistration.unregister),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiControl(lambda _: allocate_producer_ids),
    ApiKey.CONTROLLER_REGISTRATION: ApiControl(lambda _: register_controller),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiControl(lambda controls: controls.directories.assign),
    ApiKey.UNREGISTER_CONTROLLER: ApiControl(lambda _: unregister_controller),
}


def refuse_request(request: Message, refusal: Refusal) -> Message | Generator[None, None, Message]:
    """Return the error response for a whole request, or a generator of the response.

    APIs with many items in a request use a generator, which yields after each item. APIs without a
    row, which the quorum leader serves, have a top-level error.
    """
    row = API_CONTROLS.get(request.__api_key__)
    refuse = refuse_as_a_whole if row is None else row.refuse
    return refuse(request, refusal)
