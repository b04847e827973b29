"""The election of the registry's leader by Kafka's group protocol.

Every process of the registry is a member of one group of the type `sr`. The group's leader, which
the broker chooses, names the registry's leader: the present one if it is still a member, else the
eligible member with the smallest URL. Metadata and assignment are JSON as in Confluent's and
Karapace's registries, so that their processes can be members of the same group.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from barnabas.client.errors import ClientError
from barnabas.client.group.classic_member_state import (
    ClassicMemberState,
    ClassicMemberStatus,
    JoinStep,
)
from barnabas.client.group.group_calls import (
    CoordinatorSearch,
    GroupCalls,
    Heartbeat,
    HeartbeatCallbacks,
)
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.group.rebalance import Rebalance, RebalanceDependencies
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequestAssignment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.aio.session import AsyncSession
    from barnabas.client.group.group_leader import OnAssigned
    from barnabas.protocol.messages.groups import JoinGroupResponse
    from barnabas.protocol.schema import Message

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

PROTOCOL_TYPE = "sr"
_PROTOCOL_NAME = "v0"
_VERSION = 1
_NO_ERROR, _DUPLICATE_URLS = 0, 1
_LEAVE_LISTS_FROM = 3
# What the address of a member may be.
_SCHEMES = ("http", "https")
_HOST_CHARACTERS_MAX, _PORT_MAX = 255, 65_535
_NOT_IN_HOSTS = "/?#@\\%[] "
_REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
# After these errors, the next join need not wait, except after several of them.
_IMMEDIATE_JOINS_MAX = 5
_IMMEDIATE = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS})


class RegistryIdentity(msgspec.Struct, frozen=True, omit_defaults=False):
    """A process of the registry, as it describes itself to the group."""

    host: str
    port: int
    master_eligibility: bool = True
    scheme: str = "http"
    version: int = _VERSION
    # Whether the process leads now. Registries that do not know the member ignore it.
    leader: bool = False

    @property
    def url(self) -> str:
        """The address of the REST interface."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class LeaderAssignment(msgspec.Struct, frozen=True):
    """What the group's leader tells each member."""

    version: int = _VERSION
    error: int = _NO_ERROR
    # Member id and identity of the registry's leader; None if no member is eligible.
    master: str | None = None
    master_identity: RegistryIdentity | None = None


def choose_leader(members: Mapping[str, RegistryIdentity]) -> LeaderAssignment:
    """Return the assignment for a group with these members.

    Args:
        members: The identities by member id.
    """
    eligible = sorted(
        ((each.url, name) for name, each in members.items() if each.master_eligibility)
    )
    present = [name for _, name in eligible if members[name].leader]
    if len(present) == 1:
        chosen: str | None = present[0]
    else:
        chosen = eligible[0][1] if eligible else None
    urls = {each.url for each in members.values()}
    error = _NO_ERROR
    if len(urls) != len(members):
        _log.error(
            "several processes of the registry have one address, so requests cannot be forwarded: "
            "addresses=%s. Give each its own --advertised-listener",
            ",".join(sorted(urls)),
        )
        error = _DUPLICATE_URLS
    return LeaderAssignment(
        error=error,
        master=chosen,
        master_identity=None if chosen is None else members[chosen],
    )


class ElectionListener(Protocol):
    """Gets the results of elections."""

    def on_elected(self, leader: RegistryIdentity | None, *, is_self: bool) -> None:
        """Handle the leader of a new generation; None if no member is eligible."""
        ...

    def on_removed(self) -> None:
        """Handle that the group has removed this member: another process may lead."""
        ...

    def on_failed(self, error: BaseException) -> None:
        """Handle an error that no retry can remove, such as a missing right."""
        ...


def _check_address(identity: RegistryIdentity) -> None:
    """Check that an identity of another member has an address to which changes can be forwarded.

    Raises:
        ValueError: It has none.
    """
    host = identity.host
    is_host = 0 < len(host) <= _HOST_CHARACTERS_MAX and host.isprintable()
    is_host = is_host and not any(each in _NOT_IN_HOSTS for each in host)
    if identity.scheme not in _SCHEMES or not is_host or not 0 < identity.port <= _PORT_MAX:
        raise ValueError(f"{identity.url[:_HOST_CHARACTERS_MAX]!r} is not the URL of a registry")


def _decode(data: bytes, kind: type[_T]) -> _T:
    """Return the value that JSON of another member contains.

    Raises:
        ValueError: It is no such value.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


class LeaderAssigner:
    """Makes the assignments when the broker has chosen this member as the group's leader."""

    def assign(self, joined: JoinGroupResponse, on_assigned: OnAssigned) -> None:
        """Name the registry's leader. Members that no registry is do not count."""
        members: dict[str, RegistryIdentity] = {}
        for member in joined.members:
            try:
                identity = _decode(member.metadata, RegistryIdentity)
                _check_address(identity)
                members[member.member_id] = identity
            except ValueError as error:
                _log.warning(
                    "a member of the registry's group is ignored: member=%s error=%s",
                    *(member.member_id, error),
                )
        payload = msgspec.json.encode(choose_leader(members))
        names = [member.member_id for member in joined.members]
        on_assigned(
            [SyncGroupRequestAssignment(member_id=name, assignment=payload) for name in names],
            None,
        )


class RegistryMember:
    """This process as a member of the group; all methods run on the event loop.

    Args:
        session: Reaches the brokers; its configuration has `group_id` and the timeouts.
        identity: Describes this process.
        listener: Gets the results.
    """

    def __init__(
        self, session: AsyncSession, identity: RegistryIdentity, listener: ElectionListener
    ) -> None:
        group_id = session.config.group_id
        assert group_id, "a registry needs a group"
        cluster = session.cluster
        self._clock = cluster.runtime.clock
        self._config = session.config
        self._group_id: str = group_id
        self.identity = identity
        self._listener = listener
        self._status = ClassicMemberStatus()
        self._search = CoordinatorSearch(cluster, session.coordinators, group_id, self._advance)
        self._calls = GroupCalls(cluster, session.coordinators, group_id)
        callbacks = HeartbeatCallbacks(self._on_heartbeat_sent, self._on_heartbeat)
        self._heartbeat = Heartbeat(cluster, self._calls, callbacks)
        self._retry = cluster.retry_timer()
        # Joins without a backoff since the last success.
        self._immediate_joins = 0
        # The current rebalance; None without one.
        self._rebalance: Rebalance | None = None
        # When the last request was sent that the coordinator answered without an error, and the
        # one in flight (ms, monotonic clock).
        self._confirmed_ms = 0.0
        self._sent_ms = 0.0

    @property
    def generation(self) -> GroupGeneration:
        """The member and its generation."""
        status = self._status
        return GroupGeneration(self._group_id, status.generation_id, status.member_id)

    @property
    def has_session(self) -> bool:
        """Whether the coordinator cannot have removed this member for its silence yet."""
        elapsed_ms = self._clock.monotonic_ms() - self._confirmed_ms
        return not self._status.is_reset and elapsed_ms < self._config.session_timeout_ms

    def start(self) -> None:
        """Join the group."""
        self._advance()

    def leave(self, on_done: Callable[[], None]) -> None:
        """Leave the group, so that the others elect a leader at once; then stop."""
        status = self._status
        member_id = status.member_id
        is_member = member_id and status.state is not ClassicMemberState.UNJOINED
        if is_member and self._calls.is_coordinator_known:

            def build(version: int) -> Message:
                if version < _LEAVE_LISTS_FROM:
                    return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
                identity = MemberIdentity(member_id=member_id, reason="the registry stops")
                return LeaveGroupRequest(group_id=self._group_id, members=[identity])

            self.stop()
            self._calls.call_on_general_connection(
                ApiKey.LEAVE_GROUP, build, lambda _response, _error: on_done()
            )
        else:
            self.stop()
            on_done()

    def stop(self) -> None:
        """Stop at once; the coordinator notices it after the session timeout."""
        self._status.stop()
        self._heartbeat.stop()
        self._search.stop()
        self._retry.cancel()
        if self._rebalance is not None:
            self._rebalance.drop()
            self._rebalance = None

    # Joining

    def _advance(self) -> None:
        status = self._status
        if status.is_stopped or self._retry.is_scheduled:
            return
        if self._rebalance is not None:
            self._finish_rebalance(self._rebalance)
            return
        if status.rejoin_reason is None:
            return
        try:
            if not self._search.is_ready():
                return
        except ClientError as error:
            self._fail(error)
            return
        self._sent_ms = self._clock.monotonic_ms()
        self._join()

    def _join(self) -> None:
        """Send JoinGroup; the steps before it are those of consumers and do nothing here."""
        status = self._status
        if status.step is JoinStep.MATCH_PATTERN:
            status.on_pattern_matched()
        if status.step is JoinStep.GIVE_UP_PARTITIONS:
            status.on_give_up_started()
        dependencies = RebalanceDependencies(
            config=self._config,
            group_id=self._group_id,
            protocol_type=PROTOCOL_TYPE,
            calls=self._calls,
            status=status,
            leader=LeaderAssigner(),
            start_heartbeats=self._heartbeat.start,
            stop_heartbeats=self._heartbeat.stop,
        )
        metadata = {_PROTOCOL_NAME: msgspec.json.encode(self.identity)}
        self._rebalance = Rebalance(dependencies, metadata, self._advance)
        self._rebalance.start()

    def _finish_rebalance(self, rebalance: Rebalance) -> None:
        outcome = rebalance.outcome
        if outcome is None:
            return
        self._rebalance = None
        if isinstance(outcome, BaseException) or self._status.is_reset:
            self._status.on_join_failed()
            self._on_join_failed(outcome)
            return
        self._status.on_assignment_applied()
        self._retry.reset()
        self._immediate_joins = 0
        self._confirmed_ms = self._sent_ms
        try:
            assignment = _decode(outcome, LeaderAssignment)
            if assignment.master_identity is not None:
                _check_address(assignment.master_identity)
        except ValueError as error:
            self._fail(ClientError(f"the assignment of the registry cannot be read: {error}"))
            return
        self._apply(assignment)
        self._advance()

    def _apply(self, assignment: LeaderAssignment) -> None:
        is_self = assignment.master == self._status.member_id
        self.identity = msgspec.structs.replace(self.identity, leader=is_self)
        leader = assignment.master_identity
        _log.info(
            "joined the registry's group: group=%s generation=%d leader=%s",
            *(self._group_id, self._status.generation_id),
            "none" if leader is None else leader.url,
        )
        self._listener.on_elected(leader, is_self=is_self)

    def _on_join_failed(self, outcome: bytes | BaseException) -> None:
        code = outcome.error_code if isinstance(outcome, ClientError) else None
        if code is not ErrorCode.MEMBER_ID_REQUIRED:
            self._status.request_rejoin("the last rebalance failed")
            if self._status.is_reset:
                self._on_removed()
        is_usual = code in _IMMEDIATE or code in _REMOVED
        if code in _IMMEDIATE and self._immediate_joins < _IMMEDIATE_JOINS_MAX:
            self._immediate_joins += 1
            self._advance()
        elif not isinstance(outcome, ClientError) or outcome.retriable or is_usual:
            self._retry.retry(self._advance)
        else:
            self._fail(outcome)

    def _on_removed(self) -> None:
        self.identity = msgspec.structs.replace(self.identity, leader=False)
        self._listener.on_removed()

    def _fail(self, error: ClientError) -> None:
        """Report an error, and try again later: an operator may remove its cause."""
        self._listener.on_failed(error)
        if not self._retry.is_scheduled:
            self._retry.retry(self._advance)

    # Heartbeats

    def _on_heartbeat_sent(self) -> GroupGeneration:
        self._sent_ms = self._clock.monotonic_ms()
        return self.generation

    def _on_heartbeat(self, error: ClientError | None, sent_by: GroupGeneration) -> None:
        if error is None:
            self._confirmed_ms = self._sent_ms
            return
        code = error.error_code
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._confirmed_ms = self._sent_ms
            if self._status.state is ClassicMemberState.STABLE:
                self._status.request_rejoin("group is already rebalancing")
                self._advance()
        elif code in _REMOVED and sent_by == self.generation:
            _log.warning(
                "the group removed this process: group=%s error=%s", self._group_id, code.name
            )
            self._heartbeat.stop()
            keep = code is ErrorCode.ILLEGAL_GENERATION
            self._status.reset(f"encountered {code.name}", keep_member_id=keep)
            self._on_removed()
            self._advance()
        elif not error.retriable:
            self._listener.on_failed(error)
