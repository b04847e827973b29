"""`barnabas quorum`: describe the metadata quorum, add and remove voters.

`doctor`, `why` and `top` also check first whether the quorum has a leader. Brokers answer Metadata
from their stored state, even without a controller. Only the quorum's leader answers DescribeQuorum.
Without a leader that request fails, which shows the loss.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import dim, echo_line, echo_table, good, header_option, strong, warn
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.client.errors import ClientError, NoBrokersError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.cluster import QuorumDescription, QuorumReplica, VoterEndpoint
    from barnabas.client.facade import Client

NO_QUORUM_LEADER = (
    "the metadata quorum has no leader: no topic can be created, no partition can get "
    "a new leader, and no broker can join"
)
# Errors that do not mean that the quorum has no leader.
_OTHER_REASONS = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
# Usual time of an election (s).
_ELECTION_S = 1.5


class QuorumState(NamedTuple):
    """The description of the quorum, or the fact that it has no leader."""

    # None: there was no response, or it named no leader.
    description: QuorumDescription | None
    # Whether the quorum has no leader. Also False when the brokers cannot tell.
    is_lost: bool

    @property
    def leader(self) -> int | None:
        """The id of the active controller; None if it is unknown."""
        return None if self.description is None else self.description.leader_id


def quorum_state(client: Client) -> QuorumState:
    """Request the quorum state; takes at most request.timeout.ms per broker tried.

    During an election there is no leader for a moment. So a loss that was reported sooner than an
    election takes is only believed if a second request confirms it.
    """
    started = time.monotonic()
    found = _request(client)
    left_s = _ELECTION_S - (time.monotonic() - started)
    if found.is_lost and left_s > 0:
        time.sleep(left_s)
        found = _request(client)
    return found


def _request(client: Client) -> QuorumState:
    try:
        found = client.admin.describe_quorum(once=True)
    except NoBrokersError as error:
        # A broker that answers other requests but not this one waits for a controller.
        waited = any("DescribeQuorum" in reason for _, reason in error.attempts)
        return QuorumState(None, is_lost=waited)
    except ClientError as error:
        return QuorumState(None, is_lost=error.error_code not in _OTHER_REASONS)
    if found.leader_id < 0:
        return QuorumState(None, is_lost=True)
    return QuorumState(found, is_lost=False)


EXAMPLES = """\b
Examples:
  barnabas quorum describe
  barnabas quorum describe --json
  barnabas quorum add 4 --endpoint CONTROLLER://127.0.0.1:9196
  barnabas quorum remove 2
"""
_DEFAULTS = {"request.timeout.ms": "5000"}
_ENDPOINT = re.compile(r"(?P<name>[A-Za-z_][\w-]*)://\[?(?P<host>[^\]/]+?)\]?:(?P<port>\d{1,5})")
# A follower fetches continuously: the leader answers a fetch after half a second at most.
_STALE_MS = 3_000


@click.group(epilog=EXAMPLES)
def quorum() -> None:
    """Describe the metadata quorum, add and remove voters."""


@quorum.command("describe", epilog="\b\nExamples:\n  barnabas quorum describe --json\n")
@header_option
@client_options
def describe_quorum(options: ClientOptions) -> None:
    """Show the leader, epoch, high watermark, voters and observers of the quorum.

    Exit status 1: the quorum would have no majority if one more voter failed.
    """
    with connected(options, _DEFAULTS) as client:
        found = client.admin.describe_quorum()
    now = leader_time(found)
    behind = [voter.node_id for voter in found.voters if is_stale(voter, found, now)]
    if options.as_json:
        echo_json(_as_json(found, now))
    else:
        _echo(found, behind, now)
    if is_in_danger(len(found.voters), len(behind)):
        sys.exit(EXIT_FAILED)


def is_in_danger(voters: int, behind: int) -> bool:
    """Return whether the quorum has no spare voter because some voter is behind.

    The loss of one more voter would then leave no majority.
    """
    return behind > 0 and voters - behind - 1 < voters // 2 + 1


def leader_time(found: QuorumDescription) -> int:
    """Return the leader's clock at the time of its response.

    The leader reports its own catch-up time as the current time.
    """
    for voter in found.voters:
        if voter.node_id == found.leader_id and voter.last_caught_up_timestamp > 0:
            return voter.last_caught_up_timestamp
    return int(time.time() * 1000)


def is_stale(replica: QuorumReplica, found: QuorumDescription, now: int) -> bool:
    """Return whether a replica has not fetched from the leader for a while."""
    if replica.node_id == found.leader_id:
        return False
    if replica.last_fetch_timestamp < 0:
        return True
    return now - max(replica.last_fetch_timestamp, replica.last_caught_up_timestamp) > _STALE_MS


def _echo(found: QuorumDescription, behind: Sequence[int], now: int) -> None:
    voters = len(found.voters)
    echo_line(
        strong(f"leader {found.leader_id}"),
        f", epoch {found.leader_epoch}, high watermark {found.high_watermark}, "
        f"{counted(voters, 'voter')}, {counted(len(found.observers), 'observer')}",
    )
    end = end_offset(found)
    rows: list[tuple[object, ...]] = []
    for role, replicas in (("voter", found.voters), ("observer", found.observers)):
        for replica in sorted(replicas, key=lambda each: each.node_id):
            leads = replica.node_id == found.leader_id
            stale = is_stale(replica, found, now)
            known = replica.log_end_offset >= 0
            lag = max(0, end - replica.log_end_offset) if known else None
            rows.append(
                (
                    replica.node_id,
                    good("leader") if leads else role,
                    replica.log_end_offset if known else None,
                    dim(lag) if lag is None else warn(lag) if lag and stale else good(lag),
                    dim(None) if leads else _ago(replica.last_fetch_timestamp, now, stale=stale),
                    dim(None)
                    if leads
                    else _ago(replica.last_caught_up_timestamp, now, stale=stale),
                    _endpoints(found, replica) or dim(None),
                )
            )
    echo_table(
        ("node", "role", "end", "lag", "fetched", "caught up", "listens at"),
        rows,
    )
    if behind:
        names = ", ".join(map(str, behind))
        more = voters // 2 + 1
        danger = is_in_danger(voters, len(behind))
        consequence = f"; {more} of {voters} voters must be available" + (
            ", so the quorum tolerates no further failure" if danger else ""
        )
        echo_line(warn(f"voter {names} does not fetch{consequence}"))


def end_offset(found: QuorumDescription) -> int:
    """Return the end offset of the leader's metadata log."""
    ends = [each.log_end_offset for each in found.voters if each.node_id == found.leader_id]
    return ends[0] if ends else found.high_watermark


def _ago(timestamp: int, now: int, *, stale: bool) -> object:
    if timestamp < 0:
        return dim("never") if not stale else warn("never")
    return (warn if stale else good)(ago(now - timestamp))


def ago(elapsed_ms: float) -> str:
    """Return an elapsed time as text of at most ten letters."""
    seconds = max(0.0, elapsed_ms) / 1000
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.1f} s ago"


def _endpoints(found: QuorumDescription, replica: QuorumReplica) -> str:
    if replica not in found.voters:
        return ""
    return " ".join(f"{e.host}:{e.port}" for e in found.endpoints.get(replica.node_id, ()))


def _as_json(found: QuorumDescription, now: int) -> dict[str, Any]:
    from barnabas.protocol.primitives import uuid_to_string

    end = end_offset(found)

    def replica(each: QuorumReplica) -> dict[str, Any]:
        known = each.log_end_offset >= 0
        return {
            "node": each.node_id,
            "directory_id": uuid_to_string(each.directory_id),
            "log_end_offset": each.log_end_offset if known else None,
            "lag": max(0, end - each.log_end_offset) if known else None,
            "last_fetch_timestamp": each.last_fetch_timestamp,
            "last_caught_up_timestamp": each.last_caught_up_timestamp,
            "stale": is_stale(each, found, now),
            "endpoints": [
                f"{e.listener}://{e.host}:{e.port}" for e in found.endpoints.get(each.node_id, ())
            ],
        }

    return {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "leader_time": now,
        "voters": [replica(each) for each in found.voters],
        "observers": [replica(each) for each in found.observers],
    }


@quorum.command(
    "add", epilog="\b\nExamples:\n  barnabas quorum add 4 --endpoint CONTROLLER://127.0.0.1:9196\n"
)
@click.argument("node", type=click.IntRange(0), metavar="NODE")
@click.option(
    "-e",
    "--endpoint",
    "endpoints",
    multiple=True,
    required=True,
    metavar="LISTENER://HOST:PORT",
    help="The voter's listener for other controllers. May be repeated.",
)
@click.option(
    "--directory-id",
    help="Directory id of the voter's metadata log.  [default: the observer's, as the quorum "
    "knows it]",
)
@client_options
def add_voter(
    node: int, endpoints: Sequence[str], directory_id: str | None, options: ClientOptions
) -> None:
    """Make an observer of the metadata log a voter of a dynamic quorum (KIP-853).

    Start it first and let it catch up: `barnabas quorum describe` shows it as an observer.
    """
    parsed = [voter_endpoint(text) for text in endpoints]
    with connected(options, _DEFAULTS) as client:
        known = client.admin.describe_quorum()
        refuse_static(known)
        directory = voter_directory(known.observers, node, directory_id, "observer")
        client.admin.add_voter(node, directory, parsed)
        _report(client, "added", node, as_json=options.as_json)


def voter_endpoint(text: str) -> VoterEndpoint:
    """Return the endpoint LISTENER://HOST:PORT.

    Raises:
        click.UsageError: The text is malformed.
    """
    from barnabas.client.admin.cluster import VoterEndpoint

    found = _ENDPOINT.fullmatch(text)
    if found is None:
        raise click.UsageError(f"endpoint {text}: write LISTENER://HOST:PORT")
    return VoterEndpoint(found["name"], found["host"], int(found["port"]))


@quorum.command("remove", epilog="\b\nExamples:\n  barnabas quorum remove 2 --yes\n")
@click.argument("node", type=click.IntRange(0), metavar="NODE")
@click.option(
    "--directory-id", help="Directory id of the voter's metadata log.  [default: the voter's]"
)
@yes_option
@client_options
def remove_voter(node: int, directory_id: str | None, options: ClientOptions) -> None:
    """Remove a voter from a dynamic quorum (KIP-853). Asks for confirmation on a terminal."""
    confirm(f"Remove voter {node} from the metadata quorum?")
    with connected(options, _DEFAULTS) as client:
        known = client.admin.describe_quorum()
        refuse_static(known)
        directory = voter_directory(known.voters, node, directory_id, "voter")
        client.admin.remove_voter(node, directory)
        _report(client, "removed", node, as_json=options.as_json)


def refuse_static(found: QuorumDescription) -> None:
    """Refuse a change of a static quorum.

    Static voters are defined by the configuration and have no directory ids, so they cannot change.

    Raises:
        ClientError: The quorum is static.
    """
    from barnabas.client.admin.cluster import NO_DIRECTORY

    if all(voter.directory_id == NO_DIRECTORY for voter in found.voters):
        raise ClientError(
            "the quorum is static: controller.quorum.voters defines its voters. Change "
            "that key on all nodes while they are stopped, or convert the quorum to a "
            "dynamic one (KIP-853)"
        )


def voter_directory(
    replicas: Sequence[QuorumReplica], node: int, given: str | None, role: str
) -> bytes:
    """Return the directory id of a replica's metadata log.

    Args:
        replicas: The voters, or the observers.
        node: The id of the node.
        given: A directory id as text; None for that of the replica.
        role: "voter" or "observer", for the error message.

    Raises:
        ClientError: No replica has this id.
        click.UsageError: The given directory id is malformed.
    """
    from barnabas.protocol.errors import ProtocolError
    from barnabas.protocol.primitives import uuid_from_string

    if given is not None:
        try:
            return uuid_from_string(given)
        except ProtocolError:
            raise click.UsageError(
                f"--directory-id {given} is not a UUID in Kafka's format"
            ) from None
    found = next((each for each in replicas if each.node_id == node), None)
    if found is None:
        there = ", ".join(str(each.node_id) for each in replicas) or "none"
        raise ClientError(f"the quorum has no {role} {node}; {role}s: {there}")
    return found.directory_id


def _report(client: Client, done: str, node: int, *, as_json: bool) -> None:
    voters = [each.node_id for each in client.admin.describe_quorum().voters]
    if as_json:
        echo_json({done: node, "voters": voters})
    else:
        echo(f"{done} voter {node}; voters: {', '.join(map(str, voters))}")
