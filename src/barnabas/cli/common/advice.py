"""The commands that `doctor` and `why` advise, in one table, so that a test can run each of them.

Words in capital letters, such as SERVER.PROPERTIES, are for the user to replace.
"""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Options of the current command that say how to connect.
_connection: ContextVar[tuple[str, ...]] = ContextVar("connection", default=())
_WITHOUT_CLIENT = ("doctor", "log", "start")


@contextmanager
def connection_options(**options: str | None) -> Iterator[None]:
    """Add the options with which a command connects to the commands that it advises.

    Args:
        options: Value by the long name of the option; None for options that were not given.
    """
    given = [(name, value) for name, value in options.items() if value is not None]
    words = [word for name, value in given for word in (f"--{name.replace('_', '-')}", value)]
    token = _connection.set(tuple(words))
    try:
        yield
    finally:
        _connection.reset(token)


class Advice(Enum):
    """A command with placeholders in braces.

    `--` stands before the names that users choose. It is printed only if such a name begins with a
    dash.
    """

    ABORT_TRANSACTION = "transactions abort --start-offset {offset} -- {topic}:{partition}"
    ADD_USER = "users add NAME --mechanism {mechanism}"
    CANCEL_REASSIGNMENTS = "partitions reassign --cancel"
    CREATE_TOPIC = "topics create -- {topic}"
    DELETE_GROUP = "groups delete -- {group}"
    DESCRIBE_LINK = "links describe -- {link}"
    DESCRIBE_QUORUM = "quorum describe"
    DESCRIBE_TOPIC_CONFIGS = "configs describe topic -- {topic}"
    DOCTOR = "doctor"
    DOCTOR_ADDRESS = "doctor {address}"
    ELECT = "partitions elect"
    ELECT_PARTITION = "partitions elect -- {topic}:{partition}"
    ELECT_UNCLEAN = "partitions elect --unclean -- {topic}:{partition}"
    ENABLE_FEATURE = "features upgrade {feature}={level}"
    EXPLAIN_GROUP_RIGHT = "acls why User:NAME describe --group {group}"
    LIMIT_CLIENT = "quotas set --client-id={client_id} producer_byte_rate=BYTES"
    LIST_GROUPS = "groups list"
    LIST_QUOTAS = "quotas list"
    LIST_REASSIGNMENTS = "partitions reassign --status"
    PROMOTE_MIRROR = "links promote --force --topic {topic} -- {link}"
    PURGE_TOPIC = "topics purge TOPIC --before-time TIME"
    REBALANCE = "rebalance"
    REPLICATE_TOPIC = (
        "partitions reassign --brokers {brokers} --replication-factor {replicas} -- {topic}"
    )
    REASSIGN_TOPIC = "partitions reassign --brokers {brokers} -- {topic}"
    REPAIR_LOG = "log repair {directory}"
    REPAIR_LOG_APPLY = "log repair {directory} --apply"
    RESET_TO_EARLIEST = "groups reset --topic {topic} --to-earliest -- {group}"
    RESET_TO_LATEST = "groups reset --topic {topic} --to-latest -- {group}"
    RESET_TO_OFFSET = "groups reset --topic {topic} --to-offset {offset} -- {group}"
    RESUME_LINK = "links resume -- {link}"
    RESUME_MIRROR = "links resume --topic {topic} -- {link}"
    FOLLOW_SOURCE = "links resume --topic {topic} --on-truncation follow -- {link}"
    SET_MIN_ISR = "configs set topic -- {topic} min.insync.replicas={replicas}"
    SHOW_KEYS = "consume -p {partition} --from -20 -e -f %k -- {topic}"
    SHOW_RECORD = "consume -p {partition} --from {offset} -n 1 -- {topic}"
    START_NEW_BROKER = "start --listen {address}"
    START_NODE = "start SERVER.PROPERTIES"
    TERMINATE_TRANSACTION = "transactions terminate -- {transactional_id}"
    UNSET_BROKER_CONFIG = "configs unset broker {broker} {key}"
    VERIFY_LOG = "log verify {directory}"
    WHY = "why"
    WHY_GROUP = "why --group -- {group}"
    WHY_PARTITION = "why -- {topic}:{partition}"
    WHY_TOPIC = "why --topic -- {topic}"

    def text(self, **values: object) -> str:
        """Return the command for a shell, with a value for each placeholder.

        It has the options by which `doctor` or `why` was told to connect: without them it would
        reach another cluster.
        """
        before, dashes, after = self.value.partition(" -- ")
        words = [each.format(**values) for each in before.split()]
        names = [each.format(**values) for each in after.split()]
        connection = () if words[0] in _WITHOUT_CLIENT else _connection.get()
        if any(name.startswith("-") for name in names):
            words += [*connection, dashes.strip(), *names]
        else:
            words += [*names, *connection]
        return shlex.join(["barnabas", *words])
