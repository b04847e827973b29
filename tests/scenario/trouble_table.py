"""The table of troubles: the cause, the finding of `barnabas doctor`, and the remedy.

`test_troubles.py` causes the problem of each row on real processes. `python -m
tools.document_troubles` writes `docs/troubles.md` from the table.
"""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """One row."""

    name: str
    # How the test causes the problem.
    cause: str
    # A part of the expected finding.
    finding: str
    # A part of the expected remedy.
    remedy: str
    # How the test resolves the problem; empty if it cannot.
    resolution: str
    # "wrong", or "note" if nothing has failed yet.
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
        "barnabas start SERVER.PROPERTIES; do not delete their data",
        "both are started",
    ),
    Trouble(
        "node that waits for its quorum",
        "of three stopped nodes, one is started",
        "accepts the connection and sends nothing",
        "its log says whether it waits for the metadata quorum or recovers its data",
        "the other two are started",
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
        "too few replicas for min.insync.replicas",
        "one of two replicas is killed, with min.insync.replicas=2",
        "reject writes with acks=all",
        "start broker 3; do not lower min.insync.replicas",
        "the broker is started",
    ),
    Trouble(
        "min.insync.replicas above the replicas",
        "a topic with one replica and min.insync.replicas=2",
        "min.insync.replicas=2 is more than its 1 replica",
        "barnabas configs set topic single min.insync.replicas=1",
        "barnabas configs set topic single min.insync.replicas=1",
        "note",
    ),
    Trouble(
        "__consumer_offsets lacks in-sync replicas",
        "a broker is killed after a group has committed",
        "one of them belongs to __consumer_offsets",
        "start broker 3: their replicas then catch up automatically",
        "the broker is started",
    ),
    Trouble(
        "unfinished reassignment",
        "partitions reassign with --throttle 1",
        "reassignment(s) are not finished",
        "barnabas partitions reassign --status",
        "barnabas partitions reassign --cancel",
        "note",
    ),
    Trouble(
        "lagging replica",
        "a restarted follower is throttled to one byte per second",
        "have replicas that are not in sync",
        "lag, although the broker answers: barnabas why slow:0",
        "barnabas configs unset broker 3 follower.replication.throttled.rate",
    ),
    Trouble(
        "group without members, with lag",
        "offsets are committed, and no member joins",
        "group idle has no members, and a lag of 10 records",
        "start its consumers; or, if it is not needed: barnabas groups delete idle",
        "barnabas groups delete idle",
        "note",
    ),
    Trouble(
        "open transaction delays readers",
        "a transactional producer writes, and neither commits nor aborts",
        "held-0: read_committed consumers receive no records from 0 on",
        "barnabas transactions terminate forgotten",
        "barnabas transactions terminate",
        "note",
    ),
    Trouble(
        "transaction that no coordinator knows",
        "a transactional batch is written without a coordinator, where this is not verified",
        "no coordinator knows it, so it never ends",
        "barnabas transactions abort --start-offset 0 left:0",
        "barnabas transactions abort",
    ),
    Trouble(
        "disabled feature",
        "share.version is lowered to 0",
        "the feature share.version has level 0: share consumers cannot join groups",
        "barnabas features upgrade share.version=2",
        "barnabas features upgrade",
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
        "consumer that does not advance",
        "a member of a group processes one record forever",
        "owns it and is an active member, but has not committed for",
        "barnabas consume -p 0 --from 3 -n 1 hung",
        "the member leaves, and its group is deleted",
    ),
    Trouble(
        "records that no consumer can read",
        "a byte of a batch is changed in the leader's log",
        "no consumer can read the records from offset 2 on: the CRC does not match",
        "barnabas groups reset --topic poisoned:0 --to-offset 3 readers",
        "barnabas groups reset --execute",
    ),
    Trouble(
        "hot partition",
        "barnabas bench produce --keys 1",
        "is hot: it takes",
        "shows the keys",
        "the producer stops",
        "note",
    ),
    Trouble(
        "record from a wrong clock",
        "a record is 50 minutes ahead",
        "ahead of our clock: the clock of its producer is wrong, or was wrong",
        "set them by NTP",
        "barnabas topics delete",
        "note",
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
        "give the port of a Kafka listener, not that of metrics or a web console",
        "",
    ),
    Trouble(
        "brokers of two clusters in bootstrap.servers",
        "two brokers of different clusters",
        "belongs to cluster",
        "list only brokers of one cluster in bootstrap.servers",
        "only one of them is listed",
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
        "of 64.0 MiB free",
        "free space",
        "space is freed",
    ),
    Trouble(
        "offline directory",
        "one of two log.dirs is replaced by a file",
        "has lost",
        "check the disk and the broker's log; restart the broker when the disk works",
        "the directory is restored, and the broker restarted",
    ),
    Trouble(
        "file descriptors near the limit",
        "ulimit -n 900 for doctor, as for the broker's service",
        "900 open files are allowed",
        "raise the limit: LimitNOFILE= of the service, or ulimit -Hn",
        "the limit is raised",
    ),
    Trouble(
        "expired certificate",
        "the broker presents a certificate that expired yesterday",
        "expired on",
        "issue a new certificate, write it over the old one, and restart",
        "the broker is restarted with a valid certificate",
    ),
    Trouble(
        "certificate for another host",
        "the subjectAltName of the broker's certificate lacks the address of the client",
        "is not for 127.0.0.1: its subjectAltName has kafka.example, *.kafka.example",
        "issue a certificate whose subjectAltName has 127.0.0.1",
        "the broker is restarted with a certificate for its address",
    ),
    Trouble(
        "authority that the client does not trust",
        "ssl.ca.location of the client names another authority",
        "the client does not trust the certificate of",
        "trust the authority of that name: ssl.ca.location=FILE.pem",
        "ssl.ca.location is corrected",
    ),
    Trouble(
        "key of another certificate",
        "the key store of server.properties has a key of another certificate",
        "the private key does not belong to the first certificate",
        "correct ssl.keystore.location",
        "the key of the certificate is put in",
    ),
    Trouble(
        "client without TLS",
        "a client with SASL_PLAINTEXT connects to a listener with SASL_SSL",
        "speaks TLS, and the client does not",
        "give the client security.protocol=SASL_SSL, sasl.mechanism=SCRAM-SHA-512",
        "security.protocol is corrected",
    ),
    Trouble(
        "client without SASL",
        "a client with SSL connects to a listener with SASL_SSL",
        "wants a login by SCRAM-SHA-512, and the client has security.protocol=SSL",
        "give the client security.protocol=SASL_SSL, sasl.mechanism=SCRAM-SHA-512",
        "security.protocol is corrected",
    ),
    Trouble(
        "wrong password",
        "sasl.password of the client is not that of the user",
        "refuses the login by SCRAM-SHA-512, which the listener offers",
        "barnabas users add NAME --mechanism SCRAM-SHA-512",
        "sasl.password is corrected",
    ),
    Trouble(
        "mechanism that is not enabled",
        "a client with sasl.mechanism=PLAIN, where only SCRAM-SHA-512 is enabled",
        "for a login by PLAIN, and the listener offers SCRAM-SHA-512",
        "set sasl.mechanism=SCRAM-SHA-512, or add PLAIN to sasl.enabled.mechanisms",
        "sasl.mechanism is corrected",
    ),
    Trouble(
        "remote store that is not mounted",
        "the mark of a store in a directory is removed while its broker is stopped",
        "has no store of cluster",
        "mount its file system, or name its bucket, before the start",
        "the mark is put back",
        "note",
    ),
)

BY_NAME = {trouble.name: trouble for trouble in TROUBLES}
