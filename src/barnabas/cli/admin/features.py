"""`barnabas features`: the feature levels that the cluster has finalized (KIP-584)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    problem,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, warn
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.cluster import UpgradeType
    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas features list
  barnabas features upgrade metadata.version=33 --dry-run
  barnabas features downgrade eligible.leader.replicas.version=0
"""

# Feature -> lowest and highest level that all brokers support.
Supported = dict[str, tuple[int, int]]


@click.group(epilog=EXAMPLES)
def features() -> None:
    """List, upgrade and downgrade feature levels."""


@features.command(
    "list",
    epilog="\b\nExamples:\n  barnabas features list --json\n\n"
    "The finalized level is active in the cluster; 0 means that the feature is "
    "disabled. Every active broker supports the supported levels.\n",
)
@client_options
def list_features(bootstrap: str, properties: Sequence[str], as_json: bool) -> None:
    """List each feature with its finalized level and the levels that all brokers support."""
    with connected(bootstrap, properties) as client:
        supported, finalized = _levels(client)
    names = sorted({*supported, *finalized})
    if as_json:
        listed = [
            {
                "feature": name,
                "finalized": finalized.get(name, 0),
                "supported_min": supported[name][0] if name in supported else None,
                "supported_max": supported[name][1] if name in supported else None,
            }
            for name in names
        ]
        echo_json(listed)
        return
    rows: list[tuple[object, ...]] = []
    for name in names:
        low, high = supported.get(name, (None, None))
        level = finalized.get(name, 0)
        could_rise = high is not None and level < high
        rows.append((name, warn(level) if could_rise else level, low, high))
    echo_table(("feature", "finalized", "supported from", "to"), rows)


def _levels(client: Client) -> tuple[Supported, dict[str, int]]:
    """Return the levels that all unfenced brokers support, and the finalized levels."""
    supported: Supported = {}
    finalized: dict[str, int] = {}
    for number, broker in enumerate(client.describe_cluster().brokers):
        found = client.admin.describe_versions(broker.id)
        # A broker that has just joined may not know the finalized levels yet.
        finalized = {**found.finalized_features, **finalized}
        own = found.supported_features
        if number == 0:
            supported = dict(own)
            continue
        supported = {
            name: (max(low, own[name][0]), min(high, own[name][1]))
            for name, (low, high) in supported.items()
            if name in own
        }
    return supported, finalized


@features.command(
    "upgrade",
    epilog="\b\nExamples:\n  barnabas features upgrade eligible.leader.replicas.version=1\n"
    "  barnabas features upgrade metadata.version=33 --dry-run\n",
)
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--dry-run", is_flag=True, help="Validate the levels without applying them.")
@client_options
def upgrade_features(
    pairs: Sequence[str], dry_run: bool, bootstrap: str, properties: Sequence[str], as_json: bool
) -> None:
    """Raise the levels of features, all or none of them."""
    from barnabas.client.admin.cluster import UpgradeType

    options = ClientOptions(bootstrap, properties, as_json)
    _update(_parse(pairs), UpgradeType.UPGRADE, options, dry_run=dry_run)


@features.command(
    "downgrade",
    epilog="\b\nExamples:\n  barnabas features downgrade eligible.leader.replicas.version=0\n"
    "  barnabas features downgrade metadata.version=25 --dry-run\n",
)
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--unsafe", is_flag=True, help="Downgrade even if the lower level loses metadata.")
@click.option("--dry-run", is_flag=True, help="Validate the levels without applying them.")
@client_options
def downgrade_features(
    pairs: Sequence[str],
    unsafe: bool,
    dry_run: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Lower the levels of features, all or none of them; level 0 disables a feature."""
    from barnabas.client.admin.cluster import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(_parse(pairs), kind, ClientOptions(bootstrap, properties, as_json), dry_run=dry_run)


def _parse(pairs: Sequence[str]) -> dict[str, int]:
    levels = {}
    for pair in pairs:
        name, _, level = pair.partition("=")
        if not name or not level.isdecimal() or int(level) > 32_767:
            raise click.UsageError(f"{pair}: write FEATURE=LEVEL with a level from 0 to 32767")
        levels[name] = int(level)
    return levels


def _update(
    levels: Mapping[str, int],
    kind: UpgradeType,
    options: ClientOptions,
    *,
    dry_run: bool,
) -> None:
    with connected(options.bootstrap, options.properties) as client:
        _, before = _levels(client)
        error: ClientError | None = None
        try:
            client.admin.update_features(levels, kind=kind, validate_only=dry_run)
        except ClientError as refused:
            error = refused
    if options.as_json:
        moves = {name: {"from": before.get(name, 0), "to": to} for name, to in levels.items()}
        message = None if error is None else str(error)
        echo_json({"features": moves, "executed": error is None and not dry_run, "error": message})
    elif error is not None:
        problem(f"{error}. No feature was changed")
    else:
        done = "would change" if dry_run else "changed"
        for name, to in levels.items():
            echo(f"{done} {name} from {before.get(name, 0)} to {to}")
    if error is not None:
        sys.exit(EXIT_FAILED)
