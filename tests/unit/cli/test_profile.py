"""`barnabas profile`: its file, precedence of settings, and hidden secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from barnabas.cli.common.output import ClientOptions, client_options
from barnabas.cli.common.profiles import Profiles, is_secret, profiles_path, select
from barnabas.cli.group import group
from conformance.cli_shell import Shell

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config directory of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("BARNABAS_PROFILE", raising=False)
    return tmp_path


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(group, ["profile", *words], env=environment)


def ok(*words: str) -> str:
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def write(text: str) -> None:
    profiles_path().parent.mkdir(exist_ok=True)
    profiles_path().write_text(text)


def test_profiles_are_created_listed_shown_edited_and_removed() -> None:
    ok("create", "one", "-b", "one:9092", "-X", "client_id=ann", "--use")
    ok("create", "two", "-b", "two:9092")
    assert ok("list", "--no-header") == "one *\tone:9092\t1\ntwo\ttwo:9092\t0\n"
    assert ok("show") == "client.id=ann\nbootstrap.servers=one:9092\n"
    ok("edit", "one", "-X", "request.timeout.ms=5000", "--unset", "client.id", "-b", "three:9092")
    told = json.loads(ok("show", "one", "--json"))
    assert told == {
        "profile": "one",
        "current": True,
        "settings": {"bootstrap.servers": "three:9092", "request.timeout.ms": "5000"},
    }
    ok("use", "two")
    assert [each["profile"] for each in json.loads(ok("list", "--json")) if each["current"]] == [
        "two"
    ]
    ok("use", "--none")
    assert "there is no current profile" in run("show").output
    ok("remove", "one", "--yes")
    ok("remove", "two", "--yes")
    assert ok("list") == ""
    told = json.loads(ok("create", "three", "--use", "--json"))
    assert told == {"profiles": ["three"], "current": "three"}


def test_a_removed_profile_is_not_current() -> None:
    ok("create", "one", "-b", "one:9092", "--use")
    ok("remove", "one", "--yes")
    assert Profiles.load().current is None
    assert select(None, (), None).bootstrap == "127.0.0.1:9092"


def test_the_file_is_for_its_owner_only(home: Path) -> None:
    ok("create", "one", "-b", "one:9092")
    path = home / "barnabas" / "profiles.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    shown = run("show", "one")
    assert "other users can read" in shown.stderr
    ok("edit", "one", "-X", "client.id=x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["profiles.toml"]


def test_special_characters_are_read_back_unchanged() -> None:
    value = 'a"b\\c\td\x7fü'
    Profiles({"one": {"client.id": value}}, "one").save()
    assert Profiles.load() == Profiles({"one": {"client.id": value}}, "one")


def test_flags_override_environment_which_overrides_profile_and_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert select(None, (), None) == ("127.0.0.1:9092", ())
    ok("create", "used", "-b", "used:1", "-X", "client.id=used", "--use")
    ok("create", "named", "-b", "named:1", "-X", "client.id=named")
    assert select(None, (), None) == ("used:1", ("client.id=used",))
    monkeypatch.setenv("BARNABAS_PROFILE", "named")
    assert select(None, (), None) == ("named:1", ("client.id=named",))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "environment:1")
    assert select(None, (), None) == ("environment:1", ("client.id=named",))
    # A profile that a flag names goes before the environment.
    assert select(None, (), "used") == ("used:1", ("client.id=used",))
    flags = select("flag:1", ("client.id=flag",), "used")
    assert flags == ("flag:1", ("client.id=used", "client.id=flag"))
    assert select(None, (), "") == ("environment:1", ())


@click.command
@click.option("--acks", default="all")
@client_options
def probe(acks: str, options: ClientOptions) -> None:
    """Print the options that a command gets."""
    del acks
    click.echo(f"{options.bootstrap} {list(options.with_flags({'acks': 'acks'}).properties)}")


def test_flags_of_a_command_override_the_profile() -> None:
    ok("create", "one", "-b", "one:9092", "-X", "acks=1")
    words = ["--profile", "one", "-X", "client.id=x"]
    done = CliRunner().invoke(probe, words)
    assert done.output == "one:9092 ['acks=1', 'client.id=x']\n"
    done = CliRunner().invoke(probe, [*words, "--acks", "0"])
    assert done.output == "one:9092 ['acks=1', 'client.id=x', 'acks=0']\n"


def test_the_error_of_a_missing_profile_lists_the_existing_ones() -> None:
    ok("create", "one", "-b", "one:9092")
    done = CliRunner().invoke(probe, ["--profile", "oen"])
    assert done.exit_code == 2
    assert "no profile 'oen'; existing profiles: one" in done.output
    for command in ("use", "show", "edit", "remove"):
        assert "existing profiles: one" in run(command, "oen").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "bad name"), "use at most 64 letters, digits"),
        (("create", "one", "-X", "no.such.key=1"), "no.such.key"),
        (("create", "one", "-X", "acks=7"), "acks"),
        (("create", "one", "-b", ""), "bootstrap.servers"),
        (("use",), "give either NAME or --none"),
    ],
)
def test_invalid_settings_are_refused_and_not_stored(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.output
    assert not profiles_path().exists()


def test_secrets_are_hidden_wherever_a_profile_is_printed() -> None:
    write(
        f'[profiles.one]\n"sasl.jaas.config" = "{SECRET}"\n"ssl.key.password" = "{SECRET}"\n'
        f'"client.id" = "ann"\n'
    )
    outputs = [run("show", "one").output, run("show", "one", "--json").output, run("list").output]
    # The client does not take these keys yet: the refusal names them only.
    outputs.append(run("edit", "one", "-X", "client.id=x").output)
    outputs.append(run("create", "two", "-X", f"sasl.password={SECRET}").output)
    words = ["--profile", "one", "topics", "list"]
    outputs.append(CliRunner().invoke(group, [words[2], words[3], *words[:2]]).output)
    assert not [output for output in outputs if SECRET in output]
    assert outputs[0].count("(hidden)") == 2
    assert "client.id=ann" in outputs[0]


@pytest.mark.parametrize(
    "key",
    ["sasl.password", "sasl_jaas_config", "ssl.keystore.key", "oauth.client.secret", "auth.token"],
)
def test_keys_of_secrets_are_detected_by_their_names(key: str) -> None:
    assert is_secret(key)
    assert not is_secret("client.id")
    assert not is_secret("key.serializer")


@pytest.mark.parametrize(
    "text", ["[profiles", "current = 5\n", "[profiles.one]\nacks = 1\n", "profiles = 3\n", "\xff"]
)
def test_a_damaged_file_is_reported_and_not_overwritten(text: str) -> None:
    profiles_path().parent.mkdir()
    profiles_path().write_bytes(text.encode("latin-1"))
    done = run("create", "one", "-b", "one:9092")
    assert done.exit_code == 2
    assert "profiles.toml" in done.output
    assert profiles_path().read_bytes() == text.encode("latin-1")


def test_an_editor_changes_the_settings(home: Path) -> None:
    ok("create", "one", "-b", "one:9092", "-X", "client.id=ann")
    refused = run("edit", "one")
    assert (refused.exit_code, "not a terminal" in refused.output) == (2, True)
    shell = Shell("127.0.0.1:1")
    words = ("profile", "edit", "one")
    environment = {"XDG_CONFIG_HOME": str(home), "EDITOR": "sed -i s/ann/bob/"}
    assert "changed profile one" in shell.on_terminal(*words, **environment)
    assert "client.id=bob" in ok("show", "one")
    environment["EDITOR"] = "true"
    assert "nothing changed" in shell.on_terminal(*words, **environment)


def test_servers_on_the_command_line_replace_those_of_a_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=in.file:1\nclient.id=mine\n")
    given = select("on.line:2", (), "", str(file))
    assert given == ("on.line:2", ("client.id=mine",))
    assert select(None, (), "", str(file)).bootstrap == "in.file:1"
