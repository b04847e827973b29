"""Kafka's error codes, and the exception for bytes or values that do not match the protocol.

An error for a peer is an `ErrorCode`, per partition or per request. It is never an exception that
crosses layers. Numbers, names and retriability are those of Kafka 4.4; the texts are our own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Self

from barnabas.protocol.schema import Array, Struct, compile_function

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.schema import Message


class ProtocolError(ValueError):
    """Bytes that cannot be decoded, or a message that cannot be encoded.

    A peer whose bytes cause this error loses its connection, without further effects.
    """


class ErrorCode(IntEnum):
    """An error code; `NONE` is 0, and an unexpected failure -1."""

    _retriable: bool
    _message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member._retriable = retriable
        member._message = message
        return member

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later without a change by the caller."""
        return self._retriable

    @property
    def message(self) -> str:
        """A description in one phrase."""
        return self._message

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the error for a code from the wire; unknown codes give UNKNOWN_SERVER_ERROR."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, False, "the broker failed with an unexpected error"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is outside the log"
    CORRUPT_MESSAGE = 2, True, "a batch is damaged or too large, or a record lacks a required key"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "the broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, False, "the requested fetch size is not allowed"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "this broker does not lead, or does not replicate, the partition",
    )
    REQUEST_TIMED_OUT = 7, True, "the request was not finished in time"
    BROKER_NOT_AVAILABLE = 8, False, "the broker cannot be reached"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica cannot serve the partition at the moment"
    MESSAGE_TOO_LARGE = 10, False, "a record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, False, "the sender follows a controller that has been replaced"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata string of a committed offset is too long"
    NETWORK_EXCEPTION = 13, True, "the connection was lost before the response arrived"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, True, "another broker coordinates this group or transactional id"
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "the topic name is not allowed, or the topic may not be used this way",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "the batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer replicas are in sync than min.insync.replicas requires"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "the records are in the log, but too few replicas were in sync",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, False, "the group has another generation than the request"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member and its group have no common protocol"
    INVALID_GROUP_ID = 24, False, "the group id is not allowed"
    UNKNOWN_MEMBER_ID = 25, False, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, False, "a record's timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "this broker does not offer the SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of the authentication"
    UNSUPPORTED_VERSION = 35, False, "the request's version is not supported"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic with this name exists"
    INVALID_PARTITIONS = 37, False, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "the replication factor is below 1 or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the assignment of replicas to brokers is not valid"
    INVALID_CONFIG = 40, False, "a configuration value is not valid"
    NOT_CONTROLLER = 41, True, "this node is not the active controller"
    INVALID_REQUEST = 42, False, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the stored message format cannot do this"
    POLICY_VIOLATION = 44, False, "a policy of the cluster forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "the producer's sequence number does not follow its last one",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the producer's sequence number was used before"
    INVALID_PRODUCER_EPOCH = 47, False, "the producer's epoch is older than the current one"
    INVALID_TXN_STATE = 48, False, "the transaction is in a state that does not allow this"
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "the producer id does not belong to this transactional id",
    )
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is above the broker's limit"
    CONCURRENT_TRANSACTIONS = 51, True, "the last change of this transaction is not finished yet"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "the transaction coordinator has been replaced"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, False, "security features are switched off"
    OPERATION_NOT_ATTEMPTED = 55, False, "not attempted, because another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the disk or log directory failed"
    LOG_DIR_NOT_FOUND = 57, False, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "the credentials were not accepted"
    UNKNOWN_PRODUCER_ID = 59, False, "the broker has no state for this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partition is already being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the token has another owner"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "token requests need another kind of authentication",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "the type of principal is not supported"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "there is no such fetch session: start a new one"
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        True,
        "the fetch session expects another epoch: start a new one",
    )
    LISTENER_NOT_FOUND = (
        72,
        True,
        "the leader has no listener with the name of the request's listener",
    )
    TOPIC_DELETION_DISABLED = 73, False, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, True, "the sender's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the sender's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the compression cannot be used with this version"
    STALE_BROKER_EPOCH = 77, False, "the broker has a newer registration"
    OFFSET_NOT_AVAILABLE = 78, True, "the new leader has no high watermark yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the given member id"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader cannot lead at the moment"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group is full"
    FENCED_INSTANCE_ID = 82, False, "another member has taken over this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica may become leader at the moment"
    ELECTION_NOT_NEEDED = 84, True, "the partition has the leader that the election would choose"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group is subscribed to the topic"
    INVALID_RECORD = 87, False, "the broker's validation rejected a record"
    UNSTABLE_OFFSET_COMMIT = 88, True, "the offset belongs to a transaction that is still open"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota is exceeded: wait for the throttle time"
    PRODUCER_FENCED = 90, False, "a newer producer uses the same transactional id"
    RESOURCE_NOT_FOUND = 91, False, "the request names a resource that does not exist"
    DUPLICATE_RESOURCE = 92, False, "the request names a resource twice, or one that exists"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "sender and receiver disagree on the voters"
    INVALID_UPDATE_VERSION = 95, False, "the update's version does not follow the current one"
    FEATURE_UPDATE_FAILED = 96, False, "the finalized features could not be changed"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "a forwarded request's principal could not be read",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "the broker has no topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "a broker with this id is already running"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker with this id is registered"
    INCONSISTENT_TOPIC_ID = 103, True, "the log belongs to another topic id than the request"
    INCONSISTENT_CLUSTER_ID = 104, False, "the request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "the fetch session began with topic names and now uses ids, or the reverse",
    )
    INELIGIBLE_REPLICA = 107, False, "a replica may not join the in-sync set at the moment"
    NEW_LEADER_ELECTED = 108, False, "the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset is in remote storage now"
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "the member's epoch is older than the coordinator's: join again",
    )
    UNRELEASED_INSTANCE_ID = 111, False, "another member still holds this group instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "the coordinator does not have the assignor"
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "the member's epoch is not current: retry after the next heartbeat",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        False,
        "the request was sent to a broker instead of a controller, or the reverse",
    )
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this type of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "there is no controller with this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription has changed"
    TELEMETRY_TOO_LARGE = 118, False, "the pushed metrics are larger than allowed"
    INVALID_REGISTRATION = 119, False, "the controller rejected the registration as not valid"
    TRANSACTION_ABORTABLE = 120, False, "the transaction can only be aborted now"
    INVALID_RECORD_STATE = (
        121,
        False,
        "the record is not in a state that allows the acknowledgement",
    )
    SHARE_SESSION_NOT_FOUND = 122, True, "there is no such share session: start a new one"
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        True,
        "the share session expects another epoch: start a new one",
    )
    FENCED_STATE_EPOCH = 124, False, "the share partition's state epoch is not current"
    INVALID_VOTER_KEY = 125, False, "the voter key does not match the receiver"
    DUPLICATE_VOTER = 126, False, "the voter is already in the voter set"
    VOTER_NOT_FOUND = 127, False, "the voter set has no such voter"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, False, "the client must connect to its bootstrap servers again"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the streams topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the group uses a newer streams topology"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "the broker has the maximum number of share sessions"
    GROUP_DELETION_FAILED = 134, False, "the group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        False,
        "the streams topology's description could not be stored",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "no controller with this id is registered"


_ERROR_FIELD = "error_code"
# The largest code that has its own count.
_LAST_CODE = int(max(ErrorCode))


def error_counter(response: type[Message]) -> Callable[[Message, list[int]], None]:
    """Return a function that adds one to `counts[code]` for each error code, including NONE.

    The last element counts code -1 and unknown codes. The function is generated from the field
    table of the response, with a loop for each array that contains an `error_code` (Kafka:
    `errorCounts` of a response).
    """
    body = _counting_lines(response, "response", 1) or ["    return"]
    source = "\n".join(["def count_errors(response, counts):", *body, ""])
    return compile_function(source, "count_errors", f"{response.__name__} errors", {})


def step_error_counter(
    response: type[Message],
) -> Callable[[Message, list[int]], Generator[None, None, None]]:
    """Return a counter like `error_counter`, as a generator that yields before each array item."""
    body = _counting_lines(response, "response", 1, in_steps=True)
    source = "\n".join(["def count_errors(response, counts):", "    yield", *body, ""])
    return compile_function(source, "count_errors", f"{response.__name__} errors in steps", {})


def _counting_lines(
    struct: type[Struct], variable: str, depth: int, *, in_steps: bool = False
) -> list[str]:
    indent = "    " * depth
    lines: list[str] = []
    for each in struct.__fields__:
        kind = each.kind
        if each.name == _ERROR_FIELD:
            lines += [
                f"{indent}code = {variable}.{_ERROR_FIELD}",
                f"{indent}counts[code if 0 <= code <= {_LAST_CODE} else -1] += 1",
            ]
        elif isinstance(kind, Array) and isinstance(kind.element, type):
            inner = _counting_lines(kind.element, f"each_{depth}", depth + 1, in_steps=in_steps)
            if inner:
                # A nullable array may be None.
                lines.append(f"{indent}for each_{depth} in {variable}.{each.name} or ():")
                if in_steps:
                    lines.append(f"{indent}    yield")
                lines += inner
    return lines
