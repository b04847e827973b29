"""`barnabas quotas`: limits on the requests of users, clients and IP addresses (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    ClientOptions,
    client_options,
    config_values,
    connected,
    echo_json,
    option_group,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, header_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.configs import QuotaEntity

EXAMPLES = """\b
Examples:
  barnabas quotas list
  barnabas quotas set --client-id loader producer_byte_rate=1048576
  barnabas quotas set --default-user consumer_byte_rate=10485760 request_percentage=50
  barnabas quotas set --ip 192.0.2.7 connection_creation_rate=10
  barnabas quotas unset --client-id loader producer_byte_rate

\b
Keys: producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of one thread's
time), controller_mutation_rate (changed partitions per second); of an IP: connection_creation_rate.
A user and a client id together form one entity. A default applies to entities without a quota.
"""

ENTITY_TYPES = ("user", "client-id", "ip")


# The options that name an entity.
entity_options = option_group(
    *(
        option
        for kind in ENTITY_TYPES
        for option in (
            click.option(f"--{kind}", metavar="NAME", help=f"The {kind} with this name."),
            click.option(
                f"--default-{kind}", is_flag=True, help=f"Every {kind} without its own quota."
            ),
        )
    )
)


def entity(given: dict[str, object]) -> dict[str, str | None]:
    """Return the parts of the entity; None for a default.

    Raises:
        click.UsageError: A name and the default of one type, or an IP with another part.
    """
    parts: dict[str, str | None] = {}
    for kind in ENTITY_TYPES:
        attribute = kind.replace("-", "_")
        name, default = given[attribute], given[f"default_{attribute}"]
        if name is not None and default:
            raise click.UsageError(f"give --{kind} or --default-{kind}, not both")
        if name is not None or default:
            parts[kind] = None if name is None else str(name)
    if "ip" in parts and len(parts) > 1:
        raise click.UsageError("an IP address cannot be combined with a user or client id")
    return parts


@click.group(epilog=EXAMPLES)
def quotas() -> None:
    """List, set and remove client quotas."""


@quotas.command("list", epilog="\b\nExamples:\n  barnabas quotas list --client-id loader\n")
@entity_options
@click.option("--strict", is_flag=True, help="Only entities with exactly these parts.")
@header_option
@client_options
def list_quotas(strict: bool, options: ClientOptions, **given: object) -> None:
    """List the quotas of all entities, or of the given ones."""
    with connected(options) as client:
        found = client.admin.describe_quotas(entity(given), strict=strict)
        if options.as_json:
            listed = [{"entity": dict(owner), "quotas": values} for owner, values in found.items()]
            echo_json(listed)
            return
        rows = [
            (entity_text(owner), key, quota_text(value))
            for owner, values in sorted(found.items(), key=lambda item: entity_text(item[0]))
            for key, value in sorted(values.items())
        ]
        echo_table(("entity", "quota", "value"), rows)


@quotas.command(
    "set",
    epilog="\b\nExamples:\n  barnabas quotas set --user app --client-id x request_percentage=20\n",
)
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@entity_options
@click.option("--dry-run", is_flag=True, help="Validate the values without changing anything.")
@client_options
def set_quotas(
    pairs: Sequence[str], dry_run: bool, options: ClientOptions, **given: object
) -> None:
    """Set quotas of an entity. Byte rates may have units, such as 10MiB."""
    changes: dict[str, float | None] = {}
    for key, text in config_values(pairs, "set").items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}={text}: the value is not a number") from None
    _alter(given, changes, options, dry_run=dry_run)


@quotas.command(
    "unset", epilog="\b\nExamples:\n  barnabas quotas unset --default-user consumer_byte_rate\n"
)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@entity_options
@click.option("--dry-run", is_flag=True, help="Validate the change without applying it.")
@client_options
def unset_quotas(
    keys: Sequence[str], dry_run: bool, options: ClientOptions, **given: object
) -> None:
    """Remove quotas of an entity."""
    _alter(given, dict.fromkeys(keys), options, dry_run=dry_run)


def _alter(
    given: dict[str, object],
    changes: dict[str, float | None],
    options: ClientOptions,
    *,
    dry_run: bool,
) -> None:
    owner: QuotaEntity = tuple(sorted(entity(given).items()))
    if not owner:
        raise click.UsageError(
            "give the entity: --user, --client-id, --ip, or one of --default-..."
        )
    with connected(options) as client:
        client.admin.alter_quotas(owner, changes, validate_only=dry_run)
        if options.as_json:
            echo_json({"entity": dict(owner), "changes": changes, "executed": not dry_run})
            return
        done = "would change" if dry_run else "changed"
        words = [f"{k} unset" if v is None else f"{k}={quota_text(v)}" for k, v in changes.items()]
        echo(f"{done} {entity_text(owner)}: {', '.join(words)}")


def entity_text(owner: QuotaEntity) -> str:
    """Return the parts of an entity, such as "user alice, client-id (default)"."""
    order = {kind: index for index, kind in enumerate(ENTITY_TYPES)}
    parts = sorted(owner, key=lambda part: order.get(part[0], len(ENTITY_TYPES)))
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts)


def quota_text(value: float) -> str:
    """Return the value of a quota, without a fraction if it has none."""
    return str(int(value)) if value == int(value) else str(value)
