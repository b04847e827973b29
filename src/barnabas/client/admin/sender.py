"""Sends admin calls to the right broker and repeats them after retriable errors (KIP-580).

An `AdminCall` says how to build the request and how to read the response. It goes to any broker, to
the controller, to one broker, or to the coordinator of a group or of a transactional id. Calls for
several groups or partitions are split by broker; parts that reached the wrong broker are sent
again.

All of this takes place in plans. A plan yields either a set of calls to make in parallel and
receives their outcomes, or a pause.

Callers easily ignore a result that contains errors. A call that changes something therefore raises
when any part has failed, after all parts are complete; the error holds all results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.client.connections.connections import Call
from barnabas.client.connections.lookups import GROUP, SHARE, TRANSACTION, Coordinators
from barnabas.client.errors import (
    AdminResultsError,
    BrokerError,
    ClientError,
    UnknownTopicError,
    broker_error,
    error_or_none,
)
from barnabas.client.group.group_offsets import GroupOffsets
from barnabas.client.retries import OnDone, RetryingCall
from barnabas.client.session.plans import run_plan
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.session.session import Waiter
    from barnabas.protocol.schema import Message


__all__ = [
    "AdminCall",
    "AdminSender",
    "CoordinatorOf",
    "Pause",
    "Plan",
    "Step",
    "checked",
    "each_partition",
    "errors_by_name",
    "errors_of",
    "fixed_call",
    "names_of",
    "raise_error",
    "raise_failed",
    "run",
]

K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
# Kafka calls these errors retriable; but if the call names the resource, the error is final.
FINAL_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
V = TypeVar("V")
# Errors that mean the requested state already existed.
_NO_FAILURE = frozenset({ErrorCode.ELECTION_NOT_NEEDED})
T = TypeVar("T")


class _Numbered(Protocol):
    """The result of a partition in a response."""

    partition_index: int


NumberedT = TypeVar("NumberedT", bound=_Numbered)


@dataclass(frozen=True, slots=True)
class AdminCall(Generic[T_co]):
    """A function that builds a request and one that reads its response, both without I/O."""

    api_key: ApiKey
    # Builds the request for the negotiated version.
    build: Callable[[int], Message]
    # Converts the response; raises BrokerError if the whole call failed.
    read: Callable[[Any], T_co]
    # An additional upper limit of the API version.
    max_version: int | None = None


def fixed_call(
    request: Message, read: Callable[[Any], T], max_version: int | None = None
) -> AdminCall[T]:
    """Return a call whose request is the same in all versions of its API."""
    return AdminCall(ApiKey(request.__api_key__), lambda _version: request, read, max_version)


def raise_error(code: int, subject: str, detail: str | None = None) -> None:
    """Raise the broker's error unless the code is 0."""
    if code:
        raise broker_error(code, subject, detail)


def errors_by_name(
    kind: str, results: Iterable[tuple[K, int, str | None]]
) -> dict[K, BrokerError | None]:
    """Return the error or None for each name.

    Raises:
        BrokerError: a result has a retriable error such as NOT_CONTROLLER; the call is repeated.
    """
    found: dict[K, BrokerError | None] = {}
    for name, code, detail in results:
        error = error_or_none(code, f"{kind} {name}", detail)
        if error is not None and error.retriable and error.error_code not in FINAL_ERRORS:
            raise error
        found[name] = error
    return found


def each_partition(
    topics: Iterable[tuple[str, Iterable[NumberedT]]],
) -> Iterator[tuple[TopicPartition, NumberedT]]:
    """Iterate over the results of partitions; `topics` has pairs of a name and its results."""
    for name, results in topics:
        for result in results:
            yield TopicPartition(name, result.partition_index), result


def raise_failed(results: Mapping[Any, object]) -> None:
    """Raise an error if one of the results is an error.

    Raises:
        AdminResultsError: holds all results.
    """
    if any(
        isinstance(result, ClientError) and result.error_code not in _NO_FAILURE
        for result in results.values()
    ):
        raise AdminResultsError(results)


def checked(plan: Plan[dict[K, V]], *, raise_errors: bool) -> Plan[dict[K, V]]:
    """Run a plan; with `raise_errors`, raise if one of its results is an error.

    Raises:
        AdminResultsError: one of the results is an error.
    """
    results = yield from plan
    if raise_errors:
        raise_failed(results)
    return results


def errors_of(results: Mapping[K, V | BrokerError]) -> dict[K, BrokerError | None]:
    """Return the error of each result, or None for a value."""
    return {key: each if isinstance(each, BrokerError) else None for key, each in results.items()}


class Pause(NamedTuple):
    """A step of a plan that waits before the next step; `delay_ms` in ms."""

    delay_ms: float


# Start functions by key; the plan receives the result or the ClientError of each.
Starts: TypeAlias = "Mapping[Any, Callable[[OnDone[Any]], None]]"
Step: TypeAlias = "Starts | Pause"
Plan: TypeAlias = "Generator[Step, Any, T]"


def names_of(given: Iterable[str]) -> list[str]:
    """Return names as a list; a single string counts as one name."""
    return [given] if isinstance(given, str) else list(given)


def run(plan: Plan[T], waiter: Waiter) -> T:
    """Run a plan and wait for each of its steps.

    Returns:
        The plan's result.

    Raises:
        ClientError: the plan failed.
    """

    def perform(step: Step) -> Any:
        if isinstance(step, Pause):
            waiter.pause(step.delay_ms)
            return None
        return waiter.wait_all(step)

    return run_plan(plan, perform)


class CoordinatorOf(NamedTuple):
    """Destination of a call: the coordinator of a group or of another kind of key."""

    key: str
    key_type: int = GROUP


class AdminSender:
    """Creates plans that send admin calls until they succeed or fail."""

    def __init__(self, cluster: Cluster, groups: Coordinators) -> None:
        self.cluster = cluster
        # Coordinators by the type of their keys.
        self._coordinators = {
            GROUP: groups,
            TRANSACTION: Coordinators(cluster, TRANSACTION),
            SHARE: Coordinators(cluster, SHARE),
        }
        self.group_offsets = GroupOffsets(cluster, groups)

    @property
    def timeout_ms(self) -> int:
        """Timeout in ms that a request gives the broker for its operation."""
        return self.cluster.config.request_timeout_ms

    def send(self, to: int | CoordinatorOf, call: AdminCall[T], *, once: bool = False) -> Plan[T]:
        """Send a call until it succeeds, fails, or `default.api.timeout.ms` has passed.

        Args:
            to: a node id, ANY_NODE, CONTROLLER, or a coordinator.
            call: the call to send.
            once: whether to make only one attempt.

        Raises:
            ClientError: the call failed.
        """
        name = _name(call)
        outcomes: dict[str, T | ClientError]
        outcomes = yield {name: self._attempt(to, call) if once else self._retrying(to, call)}
        return _result(outcomes[name])

    def send_each(
        self, calls: Mapping[int, AdminCall[T]], *, once: bool = False
    ) -> Plan[dict[int, T | ClientError]]:
        """Send calls to several nodes in parallel; return each node's result or error.

        Args:
            calls: the calls by node id.
            once: whether to make only one attempt for each node; then a missing response is an
                error in the result.
        """
        start = self._attempt if once else self._retrying
        outcomes: dict[int, T | ClientError]
        outcomes = yield {node: start(node, call) for node, call in calls.items()}
        return outcomes

    def send_to_each(
        self, calls: Mapping[CoordinatorOf, AdminCall[T]]
    ) -> Plan[dict[CoordinatorOf, T | ClientError]]:
        """Send each coordinator its own call in parallel; return each result or error."""
        outcomes: dict[CoordinatorOf, T | ClientError]
        outcomes = yield {to: self._retrying(to, call) for to, call in calls.items()}
        return outcomes

    def send_to_brokers(
        self, brokers: Callable[[], Plan[list[int]]], call: AdminCall[T]
    ) -> Plan[dict[int, T]]:
        """Send a call to all brokers of the cluster until all of them have responded.

        If a broker fails, read the list of brokers again and send the call to all again: its
        replicas may have moved to other brokers in the meantime.

        Args:
            brokers: a plan that returns the ids of the current brokers.
            call: the call to send.

        Raises:
            ClientError: a broker refused the call, or did not respond before the timeout.
        """
        retry = self.cluster.retry_timer(self.cluster.config.default_api_timeout_ms)
        while True:
            nodes = yield from brokers()
            yield from self.refresh()
            results = yield from self.send_each(dict.fromkeys(nodes, call), once=True)
            errors = [each for each in results.values() if isinstance(each, ClientError)]
            if not errors:
                return {n: a for n, a in results.items() if not isinstance(a, ClientError)}
            delay_ms = retry.next_delay_ms()
            for error in errors:
                if delay_ms is None or not _is_transient(error):
                    raise error
            assert delay_ms is not None, "a timeout raises one of the errors"
            yield Pause(delay_ms)

    def _retrying(self, to: int | CoordinatorOf, call: AdminCall[T]) -> Callable[[OnDone[T]], None]:
        cluster = self.cluster

        def start(on_done: OnDone[T]) -> None:
            RetryingCall(
                cluster.retry_timer(cluster.config.default_api_timeout_ms),
                _name(call),
                self._attempt(to, call),
                on_done,
            ).start()

        return start

    def _attempt(self, to: int | CoordinatorOf, call: AdminCall[T]) -> Callable[[OnDone[T]], None]:
        def attempt(done: OnDone[T]) -> None:
            def on_response(response: Message | None, error: ClientError | None) -> None:
                result: T | None = None
                if response is not None:
                    try:
                        result = call.read(response)
                    except ClientError as failure:
                        error = failure
                if error is not None and error.retriable:
                    self._forget_destination(to)
                done(result, error)

            if isinstance(to, CoordinatorOf):
                coordinators = self._coordinators[to.key_type]
                coordinators.call(
                    to.key, call.api_key, call.build, on_response, None, call.max_version
                )
            else:
                request = Call(call.api_key, call.build, on_response, None, call.max_version)
                self.cluster.call(to, request)

        return attempt

    def _forget_destination(self, to: int | CoordinatorOf) -> None:
        if isinstance(to, CoordinatorOf):
            self._coordinators[to.key_type].forget(to.key)
        self.cluster.request_update()

    def refresh(self) -> Plan[None]:
        """Refresh the cluster metadata, so that it contains all brokers.

        Raises:
            ClientError: no broker responded.
        """
        outcomes: dict[str, bool | ClientError]
        outcomes = yield {"metadata": self._refreshing(())}
        _result(outcomes["metadata"])

    def _refreshing(self, topics: Iterable[str]) -> Callable[[OnDone[bool]], None]:
        def start(done: OnDone[bool]) -> None:
            self.cluster.refresh(topics, lambda _none, error: done(error is None, error))

        return start

    # Calls that are split by broker

    def send_to_coordinators(
        self,
        groups: Iterable[str],
        call_for: Callable[[list[str]], AdminCall[dict[str, T | ClientError]]],
        *,
        once: bool = False,
        key_type: int = GROUP,
    ) -> Plan[dict[str, T | ClientError]]:
        """Send one call to each coordinator for its groups; return each group's result or error.

        With `once`, retriable errors are results too.
        """

        def locate(keys: list[str]) -> Plan[dict[str, int | ClientError]]:
            return self.coordinators(keys, key_type)

        return self._send_split(list(dict.fromkeys(groups)), locate, call_for, once=once)

    def send_to_leaders(
        self,
        partitions: Iterable[TopicPartition],
        call_for: Callable[
            [list[TopicPartition]], AdminCall[dict[TopicPartition, T | ClientError]]
        ],
        *,
        once: bool = False,
    ) -> Plan[dict[TopicPartition, T | ClientError]]:
        """Send one call to each leader for its partitions; return each result or error.

        With `once`, retriable errors are results too.
        """
        return self._send_split(
            list(dict.fromkeys(partitions)), self._leaders_of, call_for, once=once
        )

    def _send_split(
        self,
        remaining: list[K],
        locate: Callable[[list[K]], Plan[dict[K, int | ClientError]]],
        call_for: Callable[[list[K]], AdminCall[dict[K, T | ClientError]]],
        *,
        once: bool,
    ) -> Plan[dict[K, T | ClientError]]:
        retry = self.cluster.retry_timer(self.cluster.config.default_api_timeout_ms)
        found: dict[K, T | ClientError] = {}
        while remaining:
            found.update((yield from self._round(remaining, locate, call_for)))
            delay_ms = retry.next_delay_ms()
            if once or delay_ms is None:
                break
            remaining = [key for key in remaining if _is_transient(found[key])]
            if remaining:
                yield Pause(delay_ms)
        return found

    def _round(
        self,
        keys: list[K],
        locate: Callable[[list[K]], Plan[dict[K, int | ClientError]]],
        call_for: Callable[[list[K]], AdminCall[dict[K, T | ClientError]]],
    ) -> Plan[dict[K, T | ClientError]]:
        """Make one attempt for all `keys`."""
        found: dict[K, T | ClientError] = {}
        by_node: dict[int, list[K]] = {}
        places = yield from locate(keys)
        for key, place in places.items():
            if isinstance(place, int):
                by_node.setdefault(place, []).append(key)
            else:
                found[key] = place
        results: dict[int, dict[K, T | ClientError] | ClientError]
        results = yield {
            node: self._attempt(node, call_for(part)) for node, part in by_node.items()
        }
        for node, result in results.items():
            for key in by_node[node]:
                if isinstance(result, ClientError):
                    found[key] = result
                elif key in result:
                    found[key] = result[key]
                else:
                    found[key] = BrokerError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{key}", "missing in the response"
                    )
                if _is_transient(found[key]) and isinstance(key, str):
                    for coordinators in self._coordinators.values():
                        coordinators.forget(key)
        return found

    def coordinators(
        self, keys: list[str], key_type: int = GROUP
    ) -> Plan[dict[str, int | ClientError]]:
        """Find the node that coordinates each key, in one attempt."""

        def finding(key: str) -> Callable[[OnDone[int]], None]:
            return lambda done: self._coordinators[key_type].find(key, done)

        outcomes: dict[str, int | ClientError]
        outcomes = yield {key: finding(key) for key in keys}
        return outcomes

    def _leaders_of(
        self, partitions: list[TopicPartition]
    ) -> Plan[dict[TopicPartition, int | ClientError]]:
        metadata = self.cluster.metadata

        refresh = self._refreshing({tp.topic for tp in partitions})
        outcomes: dict[str, bool | ClientError] = yield {"metadata": refresh}
        error = outcomes["metadata"]
        places: dict[TopicPartition, int | ClientError] = {}
        for tp in partitions:
            leader = metadata.leader(tp)
            if isinstance(error, ClientError):
                places[tp] = error
            elif leader in metadata.nodes:
                places[tp] = leader
            else:
                places[tp] = self._no_leader(tp)
        return places

    def _no_leader(self, tp: TopicPartition) -> ClientError:
        if self.cluster.metadata.partition(tp) is None:
            return UnknownTopicError(str(tp), self.cluster.metadata.similar(tp.topic))
        return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))


def _is_transient(found: object) -> bool:
    """Whether `found` is an error that a retry may resolve."""
    return (
        isinstance(found, ClientError) and found.retriable and found.error_code not in FINAL_ERRORS
    )


def _result(found: T | ClientError) -> T:
    if isinstance(found, ClientError):
        raise found
    return found


def _name(call: AdminCall[T]) -> str:
    return call.api_key.name.lower().replace("_", " ")
