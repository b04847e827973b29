"""`barnabas remote`: list, verify and mark the store of tiered topics (KIP-405)."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from barnabas.cli.common import terminal
from barnabas.cli.common.named_topics import complete_topics
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    warning,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.progress import BYTES, progress
from barnabas.cli.common.tables import bad, echo_entry, echo_line, good, header_option, warn
from barnabas.cli.common.units import duration_ms, size
from barnabas.cli.remote.restore_command import restore
from barnabas.cli.remote.stores import (
    StoreArguments,
    errors_reported,
    required_store,
    store_arguments,
    store_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.remote.cluster_segments import ClusterSegments
    from barnabas.cli.remote.spooled_items import SpooledItems
    from barnabas.cli.remote.stores import OpenStore
    from barnabas.cli.remote.verification import RemoteFinding, Verification
    from barnabas.client.facade import Client

# `remote verify` could not look at everything.
EXIT_UNKNOWN = 2
# Findings in a JSON output. All of them are counted.
_JSON_FINDINGS_MAX = 10_000
# Objects of one deletion.
_DELETED_AT_ONCE = 500
_DAY_MS = 86_400_000

EXAMPLES = """\b
Examples:
  barnabas remote list
  barnabas remote list file:///mnt/tier --topic flights
  barnabas remote verify file:///mnt/tier --bootstrap 127.0.0.1:9092
  barnabas remote verify s3://bucket/prefix --option region=eu-central-1 --read

\b
docs/tiered-storage.md tells about stores and tiered topics.
"""

LIST_EXAMPLES = """\b
Examples:
  barnabas remote list
  barnabas remote list --topic flights --json
  barnabas remote list file:///mnt/tier
  barnabas remote list --config /etc/barnabas/server.properties --topic flights

\b
Without a store, the cluster at --bootstrap tells which segments it has (__remote_log_metadata).
With a store, its manifests tell it, without a cluster. Only finished copies count. A gap is a range
of offsets that no segment has, between segments that exist. An overlap is a segment with offsets
that an earlier one has too: a second copy, after a change of the leader.
"""

VERIFY_EXAMPLES = """\b
Examples:
  barnabas remote verify file:///mnt/tier --bootstrap 127.0.0.1:9092
  barnabas remote verify file:///mnt/tier --bootstrap 127.0.0.1:9092 --read
  barnabas remote verify --config server.properties --bootstrap 127.0.0.1:9092 --delete-orphans
  barnabas remote verify file:///mnt/tier --topic flights --json

\b
With --bootstrap (or --profile), the objects are compared with the metadata of the cluster. Without,
the manifests in the store tell which segments there are; a segment that is lost as a whole then
shows as a gap, and orphans are not found. Brokers may run meanwhile.

\b
  missing     an object of a segment is not in the store
  size        an object has another size than was stored
  damaged     a manifest, indexes or batches have a wrong checksum or content (mostly with --read)
  gap         no segment has offsets between others
  orphan      no metadata names the objects; --delete-orphans deletes the older ones
  incomplete  a segment without a manifest: a copy that is not finished, or was interrupted
  foreign     an object that is not one of Barnabas

\b
--read reads four segments at a time, in pieces of 4 MiB.

\b
Exit status: 0 the tier is whole (the last three kinds do not count), 1 something is missing or
damaged, 2 wrong usage, or the store or the cluster did not answer.
"""

FORMAT_EXAMPLES = """\b
Examples:
  barnabas remote format file:///mnt/tier --bootstrap 127.0.0.1:9092
  barnabas remote format s3://bucket/prefix --option region=eu-central-1 --cluster ID

\b
A store has the mark store.json. Brokers create it when they start in a cluster that never had a
tiered topic. Later they do not, because a directory without it may be a file system that is not
mounted. Mark the store when it moves to another place, or was emptied on purpose.
"""

_REMEDIES = {
    "missing": "restore the object from a backup of the store; without one, delete the records up "
    "to there: barnabas topics purge",
    "size": "restore the object from a backup of the store",
    "damaged": "restore the object from a backup of the store",
    "gap": "restore the objects of these offsets from a backup of the store",
    "orphan": "--delete-orphans deletes it when it is older than --older-than",
    "incomplete": "compare with the metadata: --bootstrap HOST:PORT",
    "foreign": "delete it if no other program needs it",
}


@click.group(epilog=EXAMPLES)
def remote() -> None:
    """List and verify the segments of tiered topics in their store."""


_topic_option = click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Only the segments of this topic.",
)


@remote.command("list", epilog=LIST_EXAMPLES)
@store_arguments
@_topic_option
@header_option
@client_options
def list_segments(store: StoreArguments, topic: str | None, options: ClientOptions) -> None:
    """Show what the remote tier has of each partition."""
    from barnabas.cli.remote import listing
    from barnabas.cli.remote.cluster_segments import ClusterSegments

    with errors_reported(EXIT_FAILED):
        named = store_of(store)
        if named is not None:
            if _names_cluster():
                raise click.UsageError(
                    "give either a store or --bootstrap; `barnabas remote verify` compares both"
                )
            opened = named.open(store.cluster)
            with progress("segments") as advance:
                found = list(listing.summaries_of_objects(opened.storage, topic, advance))
            listing.show_summaries(found, opened.cluster_id, as_json=options.as_json)
            return
        with connected(options) as client:
            cluster_id = client.describe_cluster().cluster_id
            with progress("events") as advance:
                segments = ClusterSegments(client, topic, advance)
                found = list(listing.summaries_of_metadata(segments))
        _report_skipped(segments)
        listing.show_summaries(found, cluster_id or "", as_json=options.as_json)


@remote.command("verify", epilog=VERIFY_EXAMPLES)
@store_arguments
@_topic_option
@click.option("--read", "reads", is_flag=True, help="Read all objects, and check their contents.")
@click.option(
    "--delete-orphans",
    is_flag=True,
    help="Delete objects that no metadata names, after a question.",
)
@click.option(
    "--older-than",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Delete only orphans that have not changed for this time.",
)
@terminal.yes_option
@client_options
def verify(
    store: StoreArguments,
    topic: str | None,
    reads: bool,
    delete_orphans: bool,
    older_than: str,
    options: ClientOptions,
) -> None:
    """Compare the objects of a store with the segments that exist.

    Nothing is changed without --delete-orphans.
    """
    age_ms = duration_ms(older_than)
    if age_ms is None:
        raise click.UsageError(f"--older-than {older_than}: write 90s, 15m, 12h or 7d")
    has_metadata = _names_cluster()
    if delete_orphans and not has_metadata:
        raise click.UsageError(
            "--delete-orphans needs --bootstrap: only the metadata of the cluster tells which "
            "objects are orphans"
        )
    with errors_reported(EXIT_UNKNOWN), _client(options, has_metadata) as client:
        cluster = store.cluster
        if client is not None:
            cluster = _cluster_id(client, store.cluster)
        named = required_store(store)
        if "?layout=" in named.url:
            raise click.UsageError(
                f"{named.url}: only the layout of Barnabas can be verified; `barnabas remote list` "
                "shows this one"
            )
        opened = named.open(cluster)
        done, kept = _verified(opened, client, topic, reads=reads)
        orphans = _show_findings(done, kept, opened.cluster_id, as_json=options.as_json)
        if delete_orphans:
            _delete(opened, orphans, time.time() * 1000 - age_ms, as_json=options.as_json)
    if orphans.has_problems:
        sys.exit(EXIT_FAILED)


@remote.command("format", epilog=FORMAT_EXAMPLES)
@store_arguments
@terminal.yes_option
@client_options
def format_store(store: StoreArguments, options: ClientOptions) -> None:
    """Mark a directory or bucket as the store of a cluster.

    Brokers mark the store of a new cluster themselves.
    """
    with errors_reported(EXIT_FAILED), _client(options, _names_cluster()) as client:
        cluster = store.cluster if client is None else _cluster_id(client, store.cluster)
        if cluster is None:
            raise click.UsageError("give the cluster: --bootstrap HOST:PORT, or --cluster ID")
        named = required_store(store)
        is_marked = named.is_marked(cluster)
        if not is_marked:
            terminal.confirm(
                f"Mark {named.url} as the store of cluster {cluster}? Its brokers then take it for "
                "whole: segments that are not there are lost to them."
            )
            named.mark(cluster)
    if options.as_json:
        echo_json({"cluster_id": cluster, "was_marked": is_marked})
    elif is_marked:
        echo(f"{named.url} is marked already as the store of cluster {cluster}")
    else:
        echo(f"marked {named.url} as the store of cluster {cluster}")


class _Orphans:
    """What a verification leaves to do."""

    def __init__(self, has_problems: bool, items: SpooledItems[RemoteFinding]) -> None:
        # Whether something is missing or damaged.
        self.has_problems = has_problems
        self.items = items


def _verified(
    store: OpenStore, client: Client | None, topic: str | None, *, reads: bool
) -> tuple[Verification, Iterator[RemoteFinding]]:
    """Verify the store; return the counts, and the findings that still hold at the end."""
    from barnabas.cli.remote.cluster_segments import ClusterSegments
    from barnabas.cli.remote.verification import Verification, VerifyScope

    if client is None:
        scope = VerifyScope(topic, reads, False, lambda _: True)
        with progress(BYTES) as advance:
            done = Verification(store, scope, advance)
            listed = store.storage.list_segments(topic)
            done.run(each.segment for each in listed)
        return done, done.findings.read()
    with progress("events") as advance:
        cluster = ClusterSegments(client, topic, advance)
        found = cluster.in_order()
    _report_skipped(cluster)
    if not found.segment_count and (topic is None or not cluster.events):
        fail(
            "the cluster names no remote segment at all, so it cannot tell what the store should "
            "have; verify the objects alone: leave out --bootstrap"
        )
    topics: set[bytes] = set()

    def has_topic(topic_id: bytes) -> bool:
        # Asked after the listing, so that the answer has all topics with objects in it.
        if not topics:
            topics.update(each.topic_id for each in client.describe_topics().values())
        return topic_id in topics

    scope = VerifyScope(topic, reads, True, has_topic)
    with progress(BYTES, lambda: found.total_bytes) as advance:
        done = Verification(store, scope, advance)
        done.run(found.segments)
    changed = cluster.changed()
    kept = (each for each in done.findings.read() if each.key not in changed)
    return done, kept


def _show_findings(
    done: Verification, findings: Iterator[RemoteFinding], cluster_id: str, *, as_json: bool
) -> _Orphans:
    """Print the findings and the counts; return the orphans."""
    from barnabas.cli.remote.spooled_items import SpooledItems
    from barnabas.cli.remote.verification import ORPHAN, RemoteFinding

    orphans = SpooledItems(RemoteFinding)
    counts: dict[str, int] = {}
    listed: list[dict[str, Any]] = []
    has_problems = False
    for each in findings:
        counts[each.kind] = counts.get(each.kind, 0) + 1
        has_problems = has_problems or each.is_problem
        if each.kind == ORPHAN:
            orphans.add(each)
        if as_json:
            if len(listed) < _JSON_FINDINGS_MAX:
                listed.append(_finding_json(each))
        else:
            mark = bad("wrong") if each.is_problem else warn("note")
            text = f"{each.kind}: {each.subject}: {each.what}"
            echo_entry(mark, text, _REMEDIES[each.kind])
    if as_json:
        echo_json(
            {
                "cluster_id": cluster_id,
                "segments": done.segments,
                "bytes": done.bytes,
                "unfinished": done.unfinished,
                "is_whole": not has_problems,
                "counts": counts,
                "findings": listed,
            }
        )
    else:
        words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        verdict = bad(words) if has_problems else warn(words) if words else good("whole")
        verified = f"{counted(done.segments, 'segment')}, {size(done.bytes)}"
        echo_line(verdict, f": {verified}, cluster {cluster_id}")
        if done.unfinished:
            echo_line(f"{done.unfinished} more are being copied or deleted")
    return _Orphans(has_problems, orphans)


def _finding_json(finding: RemoteFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "what": finding.what,
        "wrong": finding.is_problem,
        "objects": list(finding.objects),
        "bytes": finding.size,
    }


def _delete(store: OpenStore, orphans: _Orphans, before_ms: float, *, as_json: bool) -> None:
    """Delete the orphans that have not changed since a time, after a question."""
    from barnabas.cli.remote.spooled_items import SpooledItems
    from barnabas.cli.remote.verification import RemoteFinding

    old = SpooledItems(RemoteFinding)
    count = total = 0
    for each in orphans.items.read():
        if each.modified_ms <= before_ms:
            old.add(each)
            count += len(each.objects)
            total += each.size
    if count:
        if not (terminal.is_confirmed() or terminal.has_terminal()):
            fail(f"{counted(count, 'object')} could be deleted: to delete them, give --yes")
        terminal.confirm(f"Delete {counted(count, 'object')} ({size(total)}) from {store.url}?")
        names: list[str] = []
        for each in old.read():
            names.extend(each.objects)
            if len(names) >= _DELETED_AT_ONCE:
                store.storage.delete_objects(names)
                names = []
        if names:
            store.storage.delete_objects(names)
    if not as_json:
        echo(f"deleted {counted(count, 'orphaned object')}, {size(total)}")


def _client(options: ClientOptions, is_needed: bool) -> Any:
    """Return the context of a client, or of None if no cluster is asked."""
    return connected(options) if is_needed else nullcontext()


def _names_cluster() -> bool:
    """Return whether the user has named a cluster on the command line."""
    context = click.get_current_context()
    sources = map(context.get_parameter_source, ("bootstrap", "profile"))
    return ParameterSource.COMMANDLINE in sources


def _cluster_id(client: Client, given: str | None) -> str:
    found = client.describe_cluster().cluster_id or ""
    if given not in (None, found):
        raise click.UsageError(f"--cluster {given}: the brokers are those of cluster {found}")
    return found


def _report_skipped(segments: ClusterSegments) -> None:
    if segments.skipped:
        warning(
            f"{counted(segments.skipped, 'record')} of __remote_log_metadata are no events of "
            "segments, and were skipped"
        )


remote.add_command(restore)
