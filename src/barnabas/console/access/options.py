"""Options of `barnabas console` for log-ins, roles, limits and the audit log."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

import click

from barnabas.client.aio.broker_login import PASSWORD_MECHANISMS
from barnabas.console.access.users import GROUP_MARK, LoginSettings, Role
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PASSWORD_BYTES_MAX = 1024
_ROLES_BYTES_MAX = 1024 * 1024
_ROLES = {role.title: role for role in Role}

_OPTIONS = (
    click.option("--allow-changes", is_flag=True, help="Show forms for changes after a log-in."),
    click.option(
        "--password-file",
        metavar="FILE",
        help="A file with the password; without it, one-time passwords are printed.",
    ),
    click.option(
        "--broker-users",
        type=click.Choice(PASSWORD_MECHANISMS, case_sensitive=False),
        help="Users log in with their name and password at the cluster, by this SASL mechanism.",
    ),
    click.option(
        "--act-as-user",
        is_flag=True,
        help="Use the cluster with the rights of the user of --broker-users, not the console's.",
    ),
    click.option(
        "--user-header",
        metavar="NAME",
        help="The header in which a trusted proxy names the user, such as X-Forwarded-User.",
    ),
    click.option(
        "--groups-header",
        metavar="NAME",
        help="The header with the groups of the user, with commas between them.",
    ),
    click.option(
        "--trusted-proxy",
        "trusted_proxies",
        multiple=True,
        metavar="ADDRESS",
        help="An address or a network (CIDR) of proxies whose headers count; may be repeated.",
    ),
    click.option(
        "--role",
        "roles",
        multiple=True,
        metavar="USER=ROLE",
        help=f"The role of a user or of a {GROUP_MARK}GROUP: viewer, operator or admin; may be "
        f"repeated.  [default: viewer]",
    ),
    click.option("--roles-file", metavar="FILE", help="A file with a USER=ROLE in each line."),
    click.option(
        "--audit-log",
        metavar="FILE",
        help="Append each log-in and each change to this file, as a line of JSON.",
    ),
    click.option(
        "--costly-limit",
        type=click.IntRange(0),
        default=120,
        show_default=True,
        metavar="COUNT",
        help="Searches, downloads and examinations of one user in a minute; 0 for no limit.",
    ),
)


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which passes their values to `login_settings`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def login_settings(
    *,
    password_file: str | None,
    broker_users: str | None,
    act_as_user: bool,
    headers: tuple[str | None, str | None],
    trusted_proxies: Iterable[str],
    roles: dict[str, Role],
) -> LoginSettings:
    """Return the ways to log in that the options give.

    Args:
        password_file: The value of --password-file.
        broker_users: The value of --broker-users.
        act_as_user: The value of --act-as-user.
        headers: The values of --user-header and --groups-header.
        trusted_proxies: The values of --trusted-proxy.
        roles: Roles by user and group.

    Raises:
        click.UsageError: Options do not fit together, or the file cannot be read.
    """
    user_header, groups_header = headers
    proxies = tuple(trusted_proxies)
    if act_as_user and not broker_users:
        raise click.UsageError("--act-as-user needs --broker-users: it uses their passwords")
    if groups_header and not user_header:
        raise click.UsageError("--groups-header needs --user-header")
    if bool(user_header) != bool(proxies):
        raise click.UsageError("--user-header and --trusted-proxy need each other")
    for each in proxies:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError as error:
            raise click.UsageError(f"--trusted-proxy: {error}") from None
    return LoginSettings(
        password=None if password_file is None else _read_password(password_file),
        broker_users=broker_users or "",
        acts_as_user=act_as_user,
        user_header=user_header or "",
        groups_header=groups_header or "",
        trusted_proxies=proxies,
        roles=roles,
    )


def read_roles(given: Iterable[str], path: str | None) -> dict[str, Role]:
    """Return roles by user and group; those on the command line override those of the file.

    Args:
        given: USER=ROLE from the command line.
        path: A file with a USER=ROLE in each line; None for none.

    Raises:
        click.UsageError: A role does not exist, or the file cannot be read.
    """
    lines = []
    if path is not None:
        text = _read(path, _ROLES_BYTES_MAX)
        lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    found = {}
    for each in (*lines, *given):
        user, equals, title = each.rpartition("=")
        role = _ROLES.get(title.strip().lower())
        if not (equals and user.strip()) or role is None:
            known = ", ".join(_ROLES)
            raise click.UsageError(f"{each!r} is not USER=ROLE; the roles are {known}")
        found[user.strip()] = role
    return found


def _read_password(path: str) -> str:
    lines = _read(path, _PASSWORD_BYTES_MAX).splitlines()
    if not lines or not lines[0].strip():
        raise click.UsageError(f"{path} is empty: its first line is the password")
    return lines[0].strip()


def _read(path: str, size: int) -> str:
    try:
        return RealDisk().read(path)[:size].decode("utf-8", "replace")
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}"
        raise click.UsageError(text) from None
