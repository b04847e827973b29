"""The parts of a controller that turn requests into records, each for one area."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.controller.acls.acls import AclControl
from barnabas.controller.configs.configs import ConfigControl
from barnabas.controller.configs.topic_configs import TopicConfigs
from barnabas.controller.credentials.tokens import TokenControl
from barnabas.controller.nodes.broker_sessions import BrokerSessions
from barnabas.controller.nodes.brokers import BrokerControl
from barnabas.controller.nodes.features import FeatureControl
from barnabas.controller.nodes.registrations import RegistrationControl
from barnabas.controller.nodes.unregistration import UnregistrationControl
from barnabas.controller.partitions.directories import DirectoryControl
from barnabas.controller.partitions.elections import Elections
from barnabas.controller.partitions.in_sync_replicas import IsrControl
from barnabas.controller.partitions.leader_elections import LeaderElectionControl
from barnabas.controller.partitions.reassignments import ReassignmentControl
from barnabas.controller.topics.partitions import PartitionControl
from barnabas.controller.topics.placement import StripedPlacer
from barnabas.controller.topics.topics import TopicControl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.policy_checks import PolicyChecks
    from barnabas.metadata.broker_registration import SupportedLevels
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.rng import Rng


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
    sessions = BrokerSessions(config.broker_session_timeout_ms, config.node_id)
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
