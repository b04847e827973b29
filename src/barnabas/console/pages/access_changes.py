"""Changes of ACLs and of the SCRAM credentials of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from barnabas.client.errors import BrokerError
from barnabas.console.access.users import Role
from barnabas.console.forms import FormError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.tables import columns_of

if TYPE_CHECKING:
    import enum

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

    E = TypeVar("E", bound=enum.Enum)


_PAGE = "/security"


def add_acl(client: Client, form: Fields) -> Done:
    """Add an access control entry."""
    acl = _acl(form)
    client.admin.create_acls([acl])
    return Done(f"added: {_words(acl)}", _PAGE, is_reported=lambda own: _is_known(own, acl))


def delete_acl(client: Client, form: Fields) -> Done:
    """Delete exactly one access control entry."""
    acl = _acl(form)
    wanted = _filter_of(acl)
    result = client.admin.delete_acls([wanted])[wanted]
    if isinstance(result, BrokerError):
        raise result
    if not result.acls:
        raise FormError(f"there is no such entry: {_words(acl)}")
    return Done(f"deleted: {_words(acl)}", _PAGE, is_reported=lambda own: not _is_known(own, acl))


def _is_known(client: Client, acl: Acl) -> bool:
    return bool(client.admin.describe_acls(_filter_of(acl)))


def _filter_of(acl: Acl) -> AclFilter:
    """Return a filter that selects exactly this entry."""
    return AclFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        principal=acl.principal,
        operation=acl.operation,
        permission=acl.permission,
        host=acl.host,
        pattern_type=acl.pattern_type,
    )


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
    columns = columns_of("Principal", "Permission", "Operation", "Resource", "Pattern", "Host")
    warning = ""
    if acl.permission is AclPermission.DENY:
        warning = "This entry denies operations. Other entries may allow them after it is deleted."
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
        raise FormError(f"{form.label(field)} cannot be {name}", field)
    return kind[name]


def set_password(client: Client, form: Fields) -> Done:
    """Create a user of SCRAM, or give it a new password."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    if not form.text("password"):
        raise FormError(f"fill in {form.label('password')}", "password")
    client.admin.alter_scram_credentials([ScramUpsertion(user, mechanism, form.text("password"))])
    text = f"set the password of {user} for {mechanism.name}"
    return Done(text, _PAGE, is_reported=lambda own: _has_password(own, user, mechanism))


def delete_user(client: Client, form: Fields) -> Done:
    """Delete the credential of a user for one mechanism."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    client.admin.alter_scram_credentials(deletions=[ScramDeletion(user, mechanism)])
    text = f"deleted {user} for {mechanism.name}"
    return Done(text, _PAGE, is_reported=lambda own: not _has_password(own, user, mechanism))


def _has_password(client: Client, user: str, mechanism: ScramMechanism) -> bool:
    found = client.admin.describe_scram_credentials([user]).get(user, [])
    return isinstance(found, list) and any(each.mechanism is mechanism for each in found)


def preview_user(_client: Client, form: Fields) -> Preview:
    """Return the credential that is deleted."""
    user = form.required("user")
    mechanism = _named(ScramMechanism, form, "mechanism")
    return Preview(
        f"Delete the user {user} for {mechanism.name}?",
        "Delete it",
        columns_of("User", "Mechanism"),
        [(user, mechanism.name)],
        "Programs with this password can no longer log in by this mechanism.",
    )


ROUTES = [
    change("/security/acls/add", add_acl, role=Role.ADMIN),
    change("/security/acls/delete", delete_acl, preview_acl, role=Role.ADMIN),
    change("/security/users/set", set_password, role=Role.ADMIN),
    change("/security/users/delete", delete_user, preview_user, role=Role.ADMIN),
]
