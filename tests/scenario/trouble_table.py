"""The table of staged troubles: what happens, what `barnabas doctor` says, and what mends it.

`test_troubles.py` stages each row on real processes. `docs/troubles.md` is written from it:
`python -m tools.document_troubles`.
"""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """One row."""

    name: str
    # How the test brings it about.
    staged: str
    # Words of the one right diagnosis, as doctor says them.
    says: str
    # Words of the remedy, as doctor says them.
    remedy: str
    # What the test does to mend it; empty if nothing can be mended.
    mended: str
    # "wrong", or "note" where nothing has failed yet.
    verdict: str = "wrong"


TROUBLES = (
    Trouble(
        "dead broker",
        "one of three brokers is killed",
        "broker 3 is down",
        "start broker 3 on 127.0.0.1: barnabas start SERVER.PROPERTIES",
        "the broker is started",
    ),
    Trouble(
        "dead quorum",
        "two of three voters are killed",
        "the metadata quorum has no leader",
        "barnabas start SERVER.PROPERTIES; delete none of their data",
        "both are started",
    ),
    Trouble(
        "paused broker",
        "SIGSTOP to one of three brokers",
        "its process is paused or stuck",
        "continue the process (kill -CONT PID)",
        "SIGCONT",
    ),
    Trouble(
        "fenced broker",
        "one of three brokers is paused until the controller fences it",
        "broker 2 does not answer",
        "continue the process (kill -CONT PID)",
        "SIGCONT",
    ),
    Trouble(
        "leaders are not the preferred ones",
        "a broker is killed, and started again",
        "not led by their preferred replica",
        "barnabas partitions elect",
        "barnabas partitions elect",
        "note",
    ),
    Trouble(
        "no majority for min.insync.replicas",
        "one of two replicas is killed, with min.insync.replicas=2",
        "refuse producers with acks=all",
        "start broker 3; do not lower min.insync.replicas",
        "the broker is started",
    ),
    Trouble(
        "min.insync.replicas above the replicas",
        "a topic with one replica and min.insync.replicas=2",
        "min.insync.replicas=2 is more than its 1 replica",
        "barnabas configs set topic single min.insync.replicas=1",
        "barnabas configs set topic single min.insync.replicas=1",
    ),
    Trouble(
        "__consumer_offsets lacks replicas",
        "a broker is killed after a group has committed",
        "__consumer_offsets is among them",
        "start broker 3: the replicas there then catch up by themselves",
        "the broker is started",
    ),
    Trouble(
        "unfinished reassignment",
        "partitions reassign with --throttle 1",
        "reassignment(s) are not finished",
        "barnabas partitions reassign --status shows how far they are; --cancel goes back",
        "barnabas partitions reassign --cancel",
        "note",
    ),
    Trouble(
        "lagging replica",
        "a follower that comes back is throttled to one byte per second",
        "lack replicas in sync",
        "lag though the broker answers: barnabas why slow:0",
        "barnabas configs unset broker 3 follower.replication.throttled.rate",
    ),
    Trouble(
        "group without members, with lag",
        "offsets are committed, and no member joins",
        "group idle has no members, and 10 records wait for it",
        "start its consumers; or, if it is not needed any more: barnabas groups delete idle",
        "barnabas groups delete idle",
        "note",
    ),
    Trouble(
        "group stuck in a rebalance",
        "a member joins and never sends its SyncGroup",
        "group stuck is stuck in a rebalance",
        "barnabas why --group stuck",
        "the member leaves",
    ),
    Trouble(
        "wrong bootstrap port",
        "no program listens at the port",
        "refuses connections",
        "start the broker that listens there: barnabas start SERVER.PROPERTIES",
        "",
    ),
    Trouble(
        "no broker at the port",
        "a web server listens at the port",
        "is a web server",
        "name the port of a listener, not the one of metrics or a web console",
        "",
    ),
    Trouble(
        "brokers of two clusters in bootstrap.servers",
        "two brokers with a cluster of their own each",
        "belongs to cluster",
        "name brokers of one cluster only in bootstrap.servers",
        "only one of them is named",
    ),
    Trouble(
        "wrong advertised address",
        "advertised.listeners names a port at which no program listens",
        "tells clients to connect to 127.0.0.1:1, which refuses connections",
        "set advertised.listeners of broker 1 to an address and port that clients reach",
        "advertised.listeners is corrected",
    ),
    Trouble(
        "wrong cluster id",
        "cluster.id of the properties file is not that of the data directory",
        "belongs to cluster",
        "set cluster.id=",
        "cluster.id is corrected",
    ),
    Trouble(
        "damaged metadata log",
        "a bit in the middle of the metadata log is flipped while the broker is stopped",
        "the metadata log is damaged, so the node does not start",
        "barnabas log repair",
        "barnabas log repair DIRECTORY --apply",
    ),
    Trouble(
        "clock off by hours",
        "the broker's clock is two hours ahead",
        "s ahead of ours",
        "set both clocks by NTP",
        "the broker is started with the right time",
    ),
    Trouble(
        "full disk",
        "the file system of log.dirs is filled",
        "0.0 of 0.1 GiB free",
        "make room",
        "",
    ),
    Trouble(
        "offline directory",
        "one of two log.dirs is replaced by a file",
        "has lost",
        "look at the disk and at the broker's log; restart it when the disk works",
        "the directory is put back, and the broker restarted",
    ),
    Trouble(
        "file descriptors near the limit",
        "ulimit -n 900 for doctor, as for the broker's service",
        "900 open files are allowed",
        "raise the limit: LimitNOFILE= of the service, or ulimit -Hn",
        "the limit is raised",
    ),
)

BY_NAME = {trouble.name: trouble for trouble in TROUBLES}
