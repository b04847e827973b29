"""The commands of `barnabas profile`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import echo_json, json_option, key_values, warning
from barnabas.cli.common.printable import echo
from barnabas.cli.common.profiles import (
    BOOTSTRAP,
    Profiles,
    check_name,
    checked_settings,
    is_secret,
    profiles_path,
)
from barnabas.cli.common.tables import dim, echo_table, good, header_option
from barnabas.cli.common.terminal import confirm, yes_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXAMPLES = """\b
Examples:
  barnabas profile create staging -b broker.example:9092 -X request.timeout.ms=5000
  barnabas profile use staging
  barnabas topics list --profile staging
  barnabas profile edit staging -X client.id=reporter --unset request.timeout.ms
  barnabas profile list

\b
A command takes each setting from the first place that has it: its flags, the environment
(BARNABAS_BOOTSTRAP), the profile, the defaults. The profile is that of --profile, else of
BARNABAS_PROFILE, else the current one. --profile counts as a flag: its servers override
BARNABAS_BOOTSTRAP. --profile '' selects no profile. Secret values such as passwords are never
printed; the file has mode 0600.
"""
_HIDDEN = "(hidden)"
_EDITED = (
    "# The settings of the profile {name}: one KEY=VALUE per line, with the keys of Kafka "
    "clients.\n"
)


@click.group(epilog=EXAMPLES)
def profile() -> None:
    """Manage named sets of bootstrap servers and client settings."""


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    try:
        return sorted(name for name in Profiles.load().by_name if name.startswith(incomplete))
    except click.UsageError:
        return []


_name_argument = click.argument("name", metavar="NAME", shell_complete=_complete)
_bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT[,...]",
    help="Brokers to connect to first.",
)
_property_option = click.option(
    "-X", "--property", "properties", multiple=True, metavar="KEY=VALUE",
    help="A configuration key of Kafka clients.",
)  # fmt: skip


@profile.command(
    "create", epilog="\b\nExamples:\n  barnabas profile create local -b 127.0.0.1:9092 --use\n"
)
@_name_argument
@_bootstrap_option
@_property_option
@click.option("--use", is_flag=True, help="Make it the current profile.")
@json_option()
def create_profile(
    name: str, bootstrap: str | None, properties: Sequence[str], use: bool, as_json: bool
) -> None:
    """Create a profile."""
    profiles = Profiles.load()
    check_name(name)
    if name in profiles.by_name:
        raise click.UsageError(f"the profile {name} already exists: barnabas profile edit {name}")
    profiles.by_name[name] = checked_settings(name, _given(bootstrap, properties))
    if use:
        profiles.current = name
    profiles.save()
    _report(f"created profile {name}" + (" and use it" if use else ""), profiles, as_json=as_json)


def _report(done: str, profiles: Profiles, *, as_json: bool) -> None:
    if as_json:
        echo_json({"profiles": sorted(profiles.by_name), "current": profiles.current})
    else:
        echo(done)


def _given(bootstrap: str | None, properties: Sequence[str]) -> dict[str, str]:
    given = {} if bootstrap is None else {BOOTSTRAP: bootstrap}
    return {**key_values(properties, "--property"), **given}


@profile.command(
    "use", epilog="\b\nExamples:\n  barnabas profile use staging\n  barnabas profile use --none\n"
)
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete)
@click.option("--none", "is_none", is_flag=True, help="Unset the current profile.")
@json_option()
def use_profile(name: str | None, is_none: bool, as_json: bool) -> None:
    """Make a profile the current one: commands use it unless they name another one."""
    if (name is None) is not is_none:
        raise click.UsageError("give either NAME or --none")
    profiles = Profiles.load()
    if name is not None:
        profiles.get(name)
    profiles.current = name
    profiles.save()
    words = "no profile is current" if name is None else f"the current profile is {name}"
    _report(words, profiles, as_json=as_json)


@profile.command("list", epilog="\b\nExamples:\n  barnabas profile list --json\n")
@header_option
@json_option()
def list_profiles(as_json: bool) -> None:
    """List the profiles; an asterisk marks the current one."""
    profiles = Profiles.load()
    names = sorted(profiles.by_name)
    if as_json:
        listed = [
            {
                "profile": name,
                "current": name == profiles.current,
                "bootstrap": profiles.by_name[name].get(BOOTSTRAP),
            }
            for name in names
        ]
        echo_json(listed)
        return
    rows = [
        (
            good(f"{name} *") if name == profiles.current else name,
            profiles.by_name[name].get(BOOTSTRAP),
            len(profiles.by_name[name].keys() - {BOOTSTRAP}) or dim(0),
        )
        for name in names
    ]
    if rows:
        echo_table(("profile", "bootstrap", "settings"), rows)
    else:
        echo("there are no profiles: barnabas profile create --help", err=True)


@profile.command("show", epilog="\b\nExamples:\n  barnabas profile show staging\n")
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete)
@json_option()
def show_profile(name: str | None, as_json: bool) -> None:
    """Show the settings of a profile, by default the current one; secrets are hidden."""
    profiles = Profiles.load()
    wanted = profiles.current if name is None else name
    if wanted is None:
        raise click.UsageError("there is no current profile: give NAME")
    shown = {key: _shown(key, value) for key, value in profiles.get(wanted).items()}
    if as_json:
        current = wanted == profiles.current
        echo_json({"profile": wanted, "current": current, "settings": shown})
        return
    for key, value in shown.items():
        echo(f"{key}={value}")
    mode = profiles_path().stat().st_mode
    if mode & 0o077:
        warning(f"other users can read {profiles_path()}: run chmod 600 on it")


def _shown(key: str, value: str) -> str:
    return _HIDDEN if is_secret(key) else value


@profile.command(
    "edit",
    epilog="\b\nExamples:\n  barnabas profile edit staging\n"
    "  barnabas profile edit staging -b other.example:9092 --unset client.id\n",
)
@_name_argument
@_bootstrap_option
@_property_option
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a setting.")
@json_option()
def edit_profile(
    name: str, bootstrap: str | None, properties: Sequence[str], unset: Sequence[str], as_json: bool
) -> None:
    """Change settings of a profile; without options, open it in $EDITOR."""
    profiles = Profiles.load()
    before = profiles.get(name)
    given = _given(bootstrap, properties)
    if given or unset:
        settings = _changed(name, before, given, unset)
    else:
        edited = _edited(name, before)
        if edited is None:
            echo("nothing changed", err=True)
            return
        settings = edited
    profiles.by_name[name] = checked_settings(name, settings)
    profiles.save()
    _report(f"changed profile {name}", profiles, as_json=as_json)


def _changed(
    name: str, before: Mapping[str, str], given: Mapping[str, str], unset: Sequence[str]
) -> dict[str, str]:
    settings = dict(before)
    for key in unset:
        if settings.pop(key.replace("_", "."), None) is None:
            raise click.UsageError(f"profile {name} has no setting {key}")
    settings.update({key.replace("_", "."): value for key, value in given.items()})
    return settings


def _edited(name: str, before: Mapping[str, str]) -> dict[str, str] | None:
    """Return the settings as edited in the user's editor; None if they were not saved."""
    if not sys.stdin.isatty():
        raise click.UsageError("not a terminal: give --bootstrap, --property or --unset")
    lines = "".join(f"{key}={value}\n" for key, value in before.items())
    text = click.edit(_EDITED.format(name=name) + lines, extension=".properties")
    if text is None:
        return None
    kept = (line.strip() for line in text.splitlines())
    return key_values([line for line in kept if line and not line.startswith("#")], "line")


@profile.command("remove", epilog="\b\nExamples:\n  barnabas profile remove staging --yes\n")
@_name_argument
@yes_option
@json_option()
def remove_profile(name: str, as_json: bool) -> None:
    """Remove a profile. Asks for confirmation on a terminal."""
    profiles = Profiles.load()
    profiles.get(name)
    confirm(f"Remove profile {name}?")
    del profiles.by_name[name]
    if profiles.current == name:
        profiles.current = None
    profiles.save()
    _report(f"removed profile {name}", profiles, as_json=as_json)
