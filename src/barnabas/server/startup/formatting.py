"""Formatting of data directories before the first start (`kafka-storage format`; KIP-853).

`barnabas start` formats empty directories itself unless the nodes have to agree on something first.
The first voters of a dynamic quorum have to agree: before the start of any voter, each must know
all voters and their directory ids. The format may contain the first SCRAM users of a cluster
(`--add-scram`, KIP-900).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import enum
import re
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.protocol.records.security import UserScramCredentialRecord
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.election_state import UnprovenVoterFile
from barnabas.raft.log.metadata_log import (
    METADATA_PARTITION,
    FirstContent,
    format_metadata_directory,
)
from barnabas.raft.log.snapshot import BOOTSTRAP_SNAPSHOT, delete_snapshot, list_snapshots
from barnabas.raft.voter_set import Address, ReplicaKey, Voter, VoterSet
from barnabas.sasl.scram_keys import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    credential_of,
    printable_salt,
    salted_password,
)
from barnabas.server.configs.config import log_directories
from barnabas.server.configs.endpoints import parse_address
from barnabas.server.startup.features import BOOTSTRAP_FEATURES
from barnabas.settings.key import whole_number
from barnabas.storage.errors import DirectoryInUseError
from barnabas.storage.files.log_directory import LOCK_FILE, write_identity
from barnabas.storage.files.metadata_files import MetaProperties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Record
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.server.configs.configuration import Configuration


_FORM = "SCRAM-SHA-512=[name=billing,password=SECRET]"
# A value is quoted, or ends before the next comma.
_ENTRY = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^",]*?))\s*(?:,|$)')
_KEYS = ("name", "password", "iterations", "salt", "saltedpassword")
_SALT_BYTES = 20


class FirstUserError(Exception):
    """The text is not a valid SCRAM user. The message has the reason, without the password."""


def parse_first_user(text: str, rng: Rng) -> UserScramCredentialRecord:
    """Return the record of a user that is given as in Kafka's `--add-scram`.

    Args:
        text: MECHANISM=[name=NAME,password=PASSWORD]. `iterations` and `salt` (base64) may follow;
            `saltedpassword` (base64) may replace the password.
        rng: randomness of the salt.

    Raises:
        FirstUserError: the text does not have the form, or a value is not allowed.
    """
    name, _, rest = text.partition("=")
    mechanism = SCRAM_MECHANISMS.get(name.strip())
    rest = rest.strip()
    if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
        raise FirstUserError(f"a SCRAM user has the form {_FORM}")
    values = _values(rest[1:-1])
    if not values.get("name"):
        raise FirstUserError(f"the SCRAM user has no name; the form is {_FORM}")
    if ("password" in values) == ("saltedpassword" in values):
        raise FirstUserError("a SCRAM user has either a password or a saltedpassword")
    iterations = whole_number(values.get("iterations", str(ITERATIONS_MIN)))
    if iterations is None or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise FirstUserError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if "salt" in values:
        salt = _bytes("salt", values["salt"])
    elif "saltedpassword" in values:
        raise FirstUserError("a saltedpassword needs its salt")
    else:
        salt = printable_salt(rng.token(_SALT_BYTES))
    if "saltedpassword" in values:
        salted = _bytes("saltedpassword", values["saltedpassword"])
    else:
        salted = salted_password(mechanism, values["password"], salt, iterations)
    made = credential_of(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(
        name=values["name"],
        mechanism=int(mechanism),
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise FirstUserError(f"a SCRAM user has the form {_FORM}; quote values with commas")
        at = match.end()
        key = match[1]
        if key not in _KEYS or key in values:
            raise FirstUserError(f"{key} is not a key of SCRAM users, or is repeated")
        values[key] = match[2] if match[2] is not None else match[3]
        if not values[key]:
            raise FirstUserError(f"{key} is empty")
    return values


def _bytes(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FirstUserError(f"{key} is not base64") from None


_EXAMPLE = "1@10.0.0.1:9093:DIRECTORY_ID,2@10.0.0.2:9093:DIRECTORY_ID"


class FormatError(Exception):
    """No directory was formatted. The message has the reason and the remedy."""


class FirstVoters(enum.Enum):
    """Choice of the first voters if the operator does not list them."""

    # By the configuration: `controller.quorum.voters`, or this node in a single-node cluster.
    AS_CONFIGURED = enum.auto()
    # This node is the only first voter of a dynamic quorum.
    STANDALONE = enum.auto()
    # Other nodes are the first voters of a dynamic quorum. This node may join later.
    NONE = enum.auto()


class InitialController(msgspec.Struct, frozen=True):
    """One of the first voters of a dynamic quorum."""

    node_id: int
    address: Address
    directory_id: bytes


class Formatted(msgspec.Struct, frozen=True):
    """A formatted data directory."""

    path: str
    directory_id: str
    # Whether this call formatted the directory. False if it was formatted before and skipped.
    is_new: bool


class FormatDependencies(msgspec.Struct, frozen=True):
    """The disk, clock and random numbers for formatting."""

    disk: Disk
    clock: Clock
    rng: Rng


class _FirstMetadata(msgspec.Struct, frozen=True):
    """First records of the metadata log of a new cluster, besides the features."""

    voters: FirstVoters | Sequence[InitialController]
    users: Sequence[Record]


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Parse Kafka's list ID@HOST:PORT:DIRECTORY_ID,...

    Raises:
        FormatError: the text is invalid, or has a node or a directory twice.
    """
    found = tuple(_initial_controller(word) for word in text.split(","))
    for what in ("node_id", "directory_id"):
        if len({getattr(each, what) for each in found}) < len(found):
            raise FormatError(f"{text}: list each controller once, with its own directory id")
    return found


def _initial_controller(word: str) -> InitialController:
    number, at, rest = word.strip().partition("@")
    address, colon, directory = rest.rpartition(":")
    parsed = parse_address(address)
    if not (at and colon and parsed and number.isascii() and number.isdigit()):
        raise FormatError(f"{word!r} is not a controller; write for example {_EXAMPLE}")
    try:
        directory_id = uuid_from_string(directory)
    except ValueError as error:
        raise FormatError(
            f"{directory!r} of {word!r} is not a directory id; `barnabas format --random-uuid` "
            f"prints one"
        ) from error
    if directory_id == ZERO_UUID:
        raise FormatError(f"{word!r}: this directory id is reserved; use another id")
    return InitialController(int(number), Address(*parsed), directory_id)


def format_node(
    configuration: Configuration,
    voters: FirstVoters | Sequence[InitialController],
    dependencies: FormatDependencies,
    *,
    skip_formatted: bool = False,
    users: Sequence[Record] = (),
) -> list[Formatted]:
    """Format every data directory of a node.

    Each directory gets its meta.properties. The metadata log of a controller also gets its
    bootstrap snapshot.

    Args:
        configuration: configuration of the node.
        voters: the first voters, as a list or as a rule.
        dependencies: disk, clock and random numbers.
        skip_formatted: whether to skip formatted directories instead of raising an error.
        users: records of SCRAM users, with which the metadata of a new cluster begins.

    Returns:
        All data directories, the skipped ones included.

    Raises:
        FormatError: a directory is formatted already, or the voters do not fit the configuration.
        DirectoryInUseError: another process uses a directory.
        OSError: a directory cannot be written.
    """
    _check_voters(configuration, voters)
    if users and not configuration.cluster.is_controller:
        raise FormatError("--add-scram needs a controller, but process.roles has no controller")
    first = _FirstMetadata(voters, users)
    cluster_id = configuration.cluster.cluster_id
    if cluster_id is None:
        raise FormatError(
            "the cluster id is missing: give all nodes of the cluster the same --cluster-id UUID "
            "(`barnabas format --random-uuid` prints a new one)"
        )
    paths, metadata_path = _paths(configuration, dependencies.disk)
    known = {path: MetaProperties.read(dependencies.disk, path) for path in paths}
    formatted = [path for path, meta in known.items() if meta is not None]
    if formatted and not skip_formatted:
        raise FormatError(
            f"{formatted[0]} is already formatted; --ignore-formatted skips it and formats the "
            f"other directories"
        )
    done = []
    for path, meta in known.items():
        if meta is None:
            is_metadata = path == metadata_path
            made = MetaProperties(
                cluster_id,
                configuration.node_id,
                _directory_id(configuration, voters, dependencies.rng, is_metadata=is_metadata),
            )
            _format(configuration, first, dependencies, path if is_metadata else None, (path, made))
            done.append(Formatted(path, uuid_to_string(made.directory_id), is_new=True))
        else:
            done.append(Formatted(path, uuid_to_string(meta.directory_id), is_new=False))
    return done


def _paths(configuration: Configuration, disk: Disk) -> tuple[list[str], str]:
    """Return all data directories, and the directory of the metadata log."""
    config = configuration.parsed
    paths = list(dict.fromkeys(disk.absolute(path) for path in log_directories(config)))
    metadata_path = disk.absolute(config.optional_string("metadata.log.dir") or paths[0])
    return list(dict.fromkeys([metadata_path, *paths])), metadata_path


def _directory_id(
    configuration: Configuration,
    voters: FirstVoters | Sequence[InitialController],
    rng: Rng,
    *,
    is_metadata: bool,
) -> bytes:
    """Return the listed directory id for the metadata directory of a voter, else a new id."""
    if is_metadata and not isinstance(voters, FirstVoters):
        for each in voters:
            if each.node_id == configuration.node_id:
                return each.directory_id
    return rng.uuid()


def _format(
    configuration: Configuration,
    first: _FirstMetadata,
    dependencies: FormatDependencies,
    metadata_path: str | None,
    identity: tuple[str, MetaProperties],
) -> None:
    """Format one directory. Write meta.properties last: without it the directory is unformatted."""
    path, meta = identity
    disk = dependencies.disk
    disk.make_directory(path)
    lock = disk.lock(f"{path}/{LOCK_FILE}")
    if lock is None:
        raise DirectoryInUseError(f"{path} is used by another process; stop that process first")
    try:
        if metadata_path is not None and configuration.cluster.is_controller:
            _begin_metadata_log(configuration, first, dependencies, path, meta.directory_id)
            # By formatting explicitly, the operator confirms that this node has not lost a vote.
            UnprovenVoterFile(disk, path).remove()
        write_identity(disk, path, meta)
    finally:
        lock.release()
        with contextlib.suppress(OSError):
            disk.remove(f"{path}/{LOCK_FILE}")


def _begin_metadata_log(
    configuration: Configuration,
    first: _FirstMetadata,
    dependencies: FormatDependencies,
    path: str,
    directory_id: bytes,
) -> None:
    directory = f"{path}/{METADATA_PARTITION.directory_name}"
    disk = dependencies.disk
    if disk.exists(directory) and BOOTSTRAP_SNAPSHOT in list_snapshots(disk, directory):
        # The snapshot is from an earlier format that was interrupted.
        delete_snapshot(disk, directory, BOOTSTRAP_SNAPSHOT)
    is_written = format_metadata_directory(
        disk,
        directory,
        BOOTSTRAP_FEATURES,
        dependencies.clock.wall_ms(),
        FirstContent(
            _voter_set(configuration, first.voters, directory_id),
            is_dynamic=first.voters is not FirstVoters.AS_CONFIGURED,
            records=first.users,
        ),
    )
    if not is_written:
        raise FormatError(
            f"{directory} already has a log, but no meta.properties names its cluster; move the "
            f"log away"
        )


def _voter_set(
    configuration: Configuration,
    voters: FirstVoters | Sequence[InitialController],
    directory_id: bytes,
) -> VoterSet | None:
    if not isinstance(voters, FirstVoters):
        name = configuration.cluster.controller_listeners[0]
        return VoterSet(
            Voter(ReplicaKey(each.node_id, each.directory_id), ((name, each.address),))
            for each in voters
        )
    if voters is not FirstVoters.STANDALONE:
        return None
    endpoints = tuple(
        (each.name, Address(each.host, each.port))
        for each in configuration.advertised_controller_endpoints
    )
    return VoterSet([Voter(ReplicaKey(configuration.node_id, directory_id), endpoints)])


def _check_voters(
    configuration: Configuration, voters: FirstVoters | Sequence[InitialController]
) -> None:
    """Raise an error for voters that do not fit the configuration, as Kafka does."""
    cluster = configuration.cluster
    if voters is FirstVoters.AS_CONFIGURED:
        if cluster.is_controller and not (cluster.voters or cluster.is_alone):
            raise FormatError(
                "controller.quorum.voters is not set, so the voters are dynamic; choose the first "
                "voters: --standalone, --initial-controllers or --no-initial-controllers"
            )
        return
    if cluster.voters:
        raise FormatError(
            "controller.quorum.voters lists static voters; for dynamic voters, remove it and set "
            "controller.quorum.bootstrap.servers"
        )
    if voters is FirstVoters.STANDALONE:
        if not cluster.is_controller:
            raise FormatError("--standalone needs a controller, but process.roles has none")
        return
    if voters is FirstVoters.NONE or not cluster.is_controller:
        return
    assert not isinstance(voters, FirstVoters)
    if configuration.node_id not in {each.node_id for each in voters}:
        raise FormatError(
            f"node {configuration.node_id} is a controller, but --initial-controllers lacks it; "
            f"format a controller that joins later with --no-initial-controllers"
        )
