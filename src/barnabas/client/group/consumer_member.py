"""Parts of a member of a KIP-848 group: its states, heartbeat requests and reconciliation.

The first heartbeat request is a full one, later ones contain only changes: the coordinator
remembers the fields that it received. After a request without a response, it is unknown which
fields the coordinator received. The next heartbeat is then a full one, and the response contains
the whole assignment.

A reconciliation moves the member from its current assignment to the coordinator's target. The steps
are commit, revoke and assign, in this order, each inside the user's polls. The heartbeat that
follows acknowledges the result. A newer target that arrives meanwhile is handled by the next
reconciliation. `TopicNames` has the names for the topic ids of an assignment, from metadata or by a
request by id.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import AssignmentSteps, MembershipHost, OnHostDone

__all__ = [
    "CONSUMER_MEMBER_STATES",
    "ConsumerMemberEvent",
    "ConsumerMemberState",
    "HeartbeatRequests",
    "MemberView",
    "PartitionsById",
    "Reconciliation",
    "TopicNames",
]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# Epoch with which a static member leaves temporarily: the coordinator keeps its partitions for the
# next member with the same instance id.
STATIC_LEAVE_EPOCH = -2
# Partition numbers by topic id.
PartitionsById = dict[bytes, frozenset[int]]


class ConsumerMemberState(Enum):
    """The state of a member under the consumer group protocol."""

    # No request was sent; the first `poll` joins.
    UNJOINED = auto()
    # The request to join (epoch 0) is being sent, or the first assignment is pending.
    JOINING = auto()
    # Coordinator and member agree on the assignment.
    STABLE = auto()
    # The coordinator's target differs from the member's assignment.
    RECONCILING = auto()
    # The member has applied a new assignment; a heartbeat that acknowledges it is sent at once.
    ACKNOWLEDGING = auto()
    # The coordinator does not know the member in this epoch: its partitions are lost, and it
    # rejoins.
    FENCED = auto()
    # The member left because the user did not poll in time: its partitions are lost, and the next
    # poll rejoins.
    STALE = auto()
    # An error occurred that is not retriable; a changed subscription starts again.
    FATAL = auto()
    # The member is leaving or has left; this state is final.
    LEFT = auto()

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count the consumer as a member; then it sends heartbeats."""
        return self in _MEMBERS


class ConsumerMemberEvent(Enum):
    """Events that change the state of a member."""

    JOIN_STARTED = auto()
    # The coordinator sent a target that differs from the assignment.
    TARGET_CHANGED = auto()
    # The assignment is the target, or the part of it whose topics are known.
    ASSIGNMENT_APPLIED = auto()
    # A heartbeat that lists the whole target, or only a part of it, is being sent.
    ACKNOWLEDGED = auto()
    ACKNOWLEDGED_IN_PART = auto()
    # A heartbeat was refused with FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID.
    FENCED = auto()
    # The user did not poll for max.poll.interval.ms.
    POLL_MISSED = auto()
    # A heartbeat failed with an error that is not retriable.
    FAILED = auto()
    SUBSCRIPTION_CHANGED = auto()
    LEFT = auto()


_S, _E = ConsumerMemberState, ConsumerMemberEvent
_MEMBERS = frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING})
# The events that end a membership.
_ENDS = {
    _E.FENCED: _S.FENCED,
    _E.POLL_MISSED: _S.STALE,
    _E.FAILED: _S.FATAL,
    _E.LEFT: _S.LEFT,
}
CONSUMER_MEMBER_STATES: Mapping[
    ConsumerMemberState, Mapping[ConsumerMemberEvent, ConsumerMemberState]
] = {
    _S.UNJOINED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.JOINING: {_E.TARGET_CHANGED: _S.RECONCILING, **_ENDS},
    _S.STABLE: {_E.TARGET_CHANGED: _S.RECONCILING, **_ENDS},
    _S.RECONCILING: {
        _E.TARGET_CHANGED: _S.RECONCILING,
        _E.ASSIGNMENT_APPLIED: _S.ACKNOWLEDGING,
        **_ENDS,
    },
    _S.ACKNOWLEDGING: {
        _E.TARGET_CHANGED: _S.RECONCILING,
        _E.ACKNOWLEDGED: _S.STABLE,
        _E.ACKNOWLEDGED_IN_PART: _S.RECONCILING,
        **_ENDS,
    },
    _S.FENCED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.STALE: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.FATAL: {_E.SUBSCRIPTION_CHANGED: _S.UNJOINED, _E.LEFT: _S.LEFT},
    _S.LEFT: {_E.LEFT: _S.LEFT},
}


class MemberView(NamedTuple):
    """The state of a member that the coordinator must know."""

    topics: tuple[str, ...]
    # The pattern that the coordinator matches; None without one.
    regex: str | None
    # Numbers of the owned partitions, by topic id.
    owned: Mapping[bytes, frozenset[int]]


class HeartbeatRequests:
    """Builds a member's requests; remembers the fields that were sent to the coordinator."""

    def __init__(self, config: ClientConfig, member_id: str) -> None:
        assert config.group_id, "a member needs a group"
        self._config = config
        self._group_id = config.group_id
        self.member_id = member_id
        # The state in the last heartbeat; None if the next heartbeat must be a full one.
        self._sent: MemberView | None = None
        # Whether the next heartbeat lists the owned partitions even if they have not changed.
        self._must_list_owned = False

    def forget(self) -> None:
        """Make the next heartbeat a full one."""
        self._sent = None

    def list_owned(self) -> None:
        """List the owned partitions in the next heartbeat, which acknowledges an assignment."""
        self._must_list_owned = True

    def heartbeat(self, epoch: int, view: MemberView) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, or the request to join (epoch 0), with all changes."""
        if epoch == JOIN_EPOCH:
            assert not view.owned, f"a member joins with {view.owned}"
            self._sent = None
        request = self._minimal_request(epoch)
        sent = self._sent
        if sent is None:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.rack_id = self._config.client_rack
            request.server_assignor = self._config.group_remote_assignor
        if sent is None or sent.topics != view.topics:
            request.subscribed_topic_names = list(view.topics)
        if (sent.regex if sent is not None else None) != view.regex:
            # An empty string removes the pattern.
            request.subscribed_topic_regex = view.regex or ""
        if sent is None or sent.owned != view.owned or self._must_list_owned:
            request.topic_partitions = [
                TopicPartitionsRequest(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(view.owned.items())
            ]
        self._sent, self._must_list_owned = view, False
        return request

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        """Return the request to leave: permanently, or temporarily for a static member."""
        self._sent = None
        static = self._config.group_instance_id is not None
        return self._minimal_request(STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)

    def _minimal_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )


class TopicNames:
    """Maps topic ids to names; requests metadata of unknown ids, with retry backoff."""

    def __init__(self, cluster: Cluster, on_response: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_response = on_response
        # Known names. A deleted topic is missing in the metadata, but its partitions are still
        # revoked by name. Limited to the topics of the current assignment and target.
        self._names: dict[bytes, str] = {}
        # Ids of the target without a known name; requested until they are known or dropped.
        self._wanted: set[bytes] = set()
        # Delays the next request after a response that left ids unknown.
        self._retry = cluster.retry_timer()
        # Whether a request is in flight; there is at most one.
        self._is_in_flight = False
        # Whether `stop` was called; this is final.
        self._stopped = False

    @property
    def is_first_request(self) -> bool:
        """Whether unknown ids are being requested for the first time, so that waiting is useful."""
        return bool(self._wanted) and self._retry.failures == 0

    def resolve(self, target: Mapping[bytes, frozenset[int]]) -> PartitionsById:
        """Return the part of `target` whose topics have names; request the names of the others."""
        known = self._cluster.metadata.names
        self._names |= {topic_id: known[topic_id] for topic_id in target if topic_id in known}
        self._wanted = {topic_id for topic_id in target if topic_id not in self._names}
        if self._wanted and not self._retry.is_scheduled:
            self._request()
        return {topic_id: target[topic_id] for topic_id in target if topic_id in self._names}

    def named(self, partitions: Mapping[bytes, frozenset[int]]) -> list[TopicPartition]:
        """Return the partitions with topic names, in order; all ids must have been resolved."""
        return sorted(
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in partitions.items()
            for number in numbers
        )

    def keep_only(self, *used: Mapping[bytes, frozenset[int]]) -> None:
        """Discard the names of topics that occur in none of the given mappings."""
        kept = set().union(*used)
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in kept}

    def stop(self) -> None:
        """Stop requesting names."""
        self._stopped = True
        self._wanted = set()
        self._retry.cancel()

    def _request(self) -> None:
        # Topics may have become known, or may have been dropped, during the backoff.
        if self._is_in_flight or self._stopped or not self._wanted:
            return
        self._is_in_flight = True
        self._cluster.refresh_by_id(sorted(self._wanted), self._on_refreshed)

    def _on_refreshed(self, _none: None, _error: ClientError | None) -> None:
        self._is_in_flight = False
        if self._stopped:
            return
        known = self._cluster.metadata.names
        self._wanted = {topic_id for topic_id in self._wanted if topic_id not in known}
        if self._wanted:
            self._retry.retry(self._request)
        else:
            self._retry.reset()
        self._on_response()


class _Step(Enum):
    """Steps of a reconciliation, in their order."""

    COMMIT = auto()
    REVOKE = auto()
    ASSIGN = auto()
    DONE = auto()


class Reconciliation:
    """One change of the assignment; each call of `next` starts one step."""

    __slots__ = ("_assigned", "_host", "_step", "_steps", "target")

    def __init__(
        self,
        host: MembershipHost,
        steps: AssignmentSteps,
        target: PartitionsById,
        assigned: list[TopicPartition],
    ) -> None:
        self._host = host
        self._steps = steps
        # The partitions that the member will own, by topic id; immutable.
        self.target = target
        # The same partitions with the names of their topics.
        self._assigned = assigned
        # The next step; moved when a step ends.
        self._step = _Step.COMMIT

    @property
    def is_done(self) -> bool:
        """Whether the assignment is applied and the user's callback has returned."""
        return self._step is _Step.DONE

    def next(self, on_done: OnHostDone) -> None:
        """Start the due step; `on_done` is called when it ends.

        A callback of the user that raises counts as called and is not repeated. The host handles
        errors of the commit: the partitions must be given up in time anyway.
        """

        def done(error: BaseException | None, following: _Step) -> None:
            self._step = following
            on_done(error)

        match self._step:
            case _Step.COMMIT:
                self._host.commit_before_revoke(
                    self._steps.removed_by(self._assigned),
                    lambda _error: done(None, _Step.REVOKE),
                )
            case _Step.REVOKE:
                revoked = self._steps.removed_by(self._assigned)
                if revoked:
                    self._host.revoke(revoked, lambda error: done(error, _Step.ASSIGN))
                else:
                    done(None, _Step.ASSIGN)
            case _Step.ASSIGN:
                self._steps.assign(self._assigned, lambda error: done(error, _Step.DONE))
            case _Step.DONE:
                raise AssertionError("a reconciliation that is done has no next step")
