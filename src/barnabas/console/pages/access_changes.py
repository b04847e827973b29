"""Changes of groups, ACLs and the SCRAM credentials of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.cli.admin.group_lag import group_positions
from barnabas.cli.common.output import moment_ms
from barnabas.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.roles import Role
from barnabas.console.forms import FormError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link

if TYPE_CHECKING:
    import enum

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

    E = TypeVar("E", bound=enum.Enum)


def reset_offsets(client: Client, form: Fields) -> Done:
    """Move the offsets of a group without members in all partitions of a topic."""
    name, topic = form.required("id"), form.required("topic")
    numbers = client.describe_topics([topic])[topic].partitions
    partitions = [TopicPartition(topic, number) for number in numbers]
    offsets = _targets(client, partitions, form)
    kinds = {each.group_id: each.type for each in client.admin.list_groups()}
    if kinds.get(name) == "share":
        results = client.admin.alter_share_group_offsets(name, offsets, raise_errors=False)
    else:
        results = client.admin.alter_group_offsets(name, offsets, raise_errors=False)
    for error in results.values():
        if error is not None:
            raise error
    return Done(f"moved {name} in {len(offsets)} partitions of {topic}", link("/group", id=name))


def preview_reset(client: Client, form: Fields) -> Preview:
    """Return where the offsets are, and where they will be."""
    name, topic = form.required("id"), form.required("topic")
    described = client.admin.describe_groups([name])[name]
    if isinstance(described, ClientError):
        raise described
    if described.members:
        raise FormError(
            f"{name} has {len(described.members)} members, which would overwrite the offsets: stop "
            "them first"
        )
    numbers = client.describe_topics([topic])[topic].partitions
    partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
    positions = group_positions(client, described)
    rows: list[tuple[object, ...]] = []
    for tp, after in _targets(client, partitions, form).items():
        before = positions.get(tp)
        rows.append((str(tp), before, after, None if before is None else f"{after - before:+d}"))
    columns = ("Partition", "Now", "After", "By")
    return Preview(f"Move the offsets of {name} in {topic}?", "Move them", columns, rows)


def _targets(
    client: Client, partitions: list[TopicPartition], form: Fields
) -> dict[TopicPartition, int]:
    """Return the new offsets, inside of the logs."""
    starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    wanted = {tp: found.offset for tp, found in ends.items()}
    match form.stripped("to"):
        case "earliest":
            wanted = {tp: found.offset for tp, found in starts.items()}
        case "latest":
            pass
        case "offset":
            wanted = dict.fromkeys(partitions, form.number("offset"))
        case "time":
            moment = max(0, moment_ms(form.required("time"), "time"))
            found_by_time = client.list_offsets(dict.fromkeys(partitions, moment))
            # A time after the last record means the end.
            for tp, found in found_by_time.items():
                wanted[tp] = found.offset if found.offset >= 0 else ends[tp].offset
        case other:
            raise FormError(f"to must be earliest, latest, offset or time, not {other!r}")
    return {
        tp: min(max(offset, starts[tp].offset), ends[tp].offset) for tp, offset in wanted.items()
    }


def delete_group(client: Client, form: Fields) -> Done:
    """Delete a group without members, with its offsets."""
    name = form.required("id")
    form.confirm(name)
    client.admin.delete_groups([name])
    return Done(f"deleted group {name}", "/groups")


_PAGE = "/security"


def add_acl(client: Client, form: Fields) -> Done:
    """Add an access control entry."""
    acl = _acl(form)
    client.admin.create_acls([acl])
    return Done(f"added: {_words(acl)}", _PAGE)


def delete_acl(client: Client, form: Fields) -> Done:
    """Delete exactly one access control entry."""
    acl = _acl(form)
    wanted = AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        principal=acl.principal,
        operation=acl.operation,
        permission=acl.permission,
        host=acl.host,
        pattern_type=acl.pattern_type,
    )
    result = client.admin.delete_acls([wanted])[wanted]
    if isinstance(result, BrokerError):
        raise result
    if not result.acls:
        raise FormError(f"there is no such entry: {_words(acl)}")
    return Done(f"deleted: {_words(acl)}", _PAGE)


def preview_acl(_client: Client, form: Fields) -> Preview:
    """Return the entry that is deleted."""
    acl = _acl(form)
    row = (
        acl.principal,
        acl.permission.name,
        acl.operation.name,
        f"{acl.resource_type.name} {acl.resource_name}",
        acl.pattern_type.name,
        acl.host,
    )
    columns = ("Principal", "Permission", "Operation", "Resource", "Pattern", "Host")
    is_deny = acl.permission is AclPermission.DENY
    warning = "This entry denies: what it denies may be allowed then." if is_deny else ""
    return Preview("Delete this access control entry?", "Delete it", columns, [row], warning)


def _acl(form: Fields) -> Acl:
    return Acl(
        resource_type=_named(AclResourceType, form, "resource_type"),
        resource_name=form.required("resource_name"),
        principal=form.required("principal"),
        operation=_named(AclOperation, form, "operation"),
        permission=_named(AclPermission, form, "permission"),
        host=form.stripped("host") or "*",
        pattern_type=_named(PatternType, form, "pattern_type"),
    )


def _words(acl: Acl) -> str:
    kinds = (acl.permission, acl.operation, acl.pattern_type, acl.resource_type)
    permission, operation, pattern, resource = (each.name.lower() for each in kinds)
    return f"{permission} {acl.principal} {operation} on {pattern} {resource} {acl.resource_name}"


def _named(kind: type[E], form: Fields, field: str) -> E:
    name = form.required(field)
    if name not in kind.__members__ or name in ("UNKNOWN", "ANY", "MATCH"):
        raise FormError(f"{field} cannot be {name}")
    return kind[name]


def set_password(client: Client, form: Fields) -> Done:
    """Create a user of SCRAM, or give it a new password."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    if not form.text("password"):
        raise FormError("fill in password")
    client.admin.alter_scram_credentials([ScramUpsertion(user, mechanism, form.text("password"))])
    return Done(f"set the password of {user} for {mechanism.name}", _PAGE)


def delete_user(client: Client, form: Fields) -> Done:
    """Delete the credential of a user for one mechanism."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    client.admin.alter_scram_credentials(deletions=[ScramDeletion(user, mechanism)])
    return Done(f"deleted {user} for {mechanism.name}", _PAGE)


def preview_user(_client: Client, form: Fields) -> Preview:
    """Return the credential that is deleted."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    return Preview(
        f"Delete the user {user} for {mechanism.name}?",
        "Delete it",
        ("User", "Mechanism"),
        [(user, mechanism.name)],
        "Programs with this password can no longer log in by this mechanism.",
    )


ROUTES = [
    change("/group/reset", reset_offsets, preview_reset),
    change("/group/delete", delete_group, role=Role.ADMIN),
    change("/security/acls/add", add_acl, role=Role.ADMIN),
    change("/security/acls/delete", delete_acl, preview_acl, role=Role.ADMIN),
    change("/security/users/set", set_password, role=Role.ADMIN),
    change("/security/users/delete", delete_user, preview_user, role=Role.ADMIN),
]
