"""Variables in configuration values: files, directories and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.settings.config_providers import ConfigProviderError, resolve_variables
from barnabas.settings.key import ConfigError, ConfigKey, ConfigType, one_of

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
}
ENVIRONMENT = {"KAFKA_PASSWORD": "from-env", "HOME": "/root"}


def resolve(text: str, **params: str) -> str:
    given = {**PROVIDERS, "key": text}
    given.update({name.replace("_", "."): value for name, value in params.items()})
    return resolve_variables(given, RealDisk(), ENVIRONMENT)["key"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text("password=päss = word\nother=x\n")
    (tmp_path / "password").write_text("line\n")
    return tmp_path


def test_each_provider_resolves_its_variables(secrets: Path) -> None:
    assert resolve(f"${{file:{secrets}/secrets.properties:password}}") == "päss = word"
    assert resolve(f"${{dir:{secrets}:password}}") == "line\n"
    assert resolve("${env:KAFKA_PASSWORD}") == "from-env"


def test_a_value_may_have_several_variables_and_text_around_them(secrets: Path) -> None:
    text = f'user="${{env:KAFKA_PASSWORD}}" password="${{file:{secrets}/secrets.properties:other}}"'
    assert resolve(text) == 'user="from-env" password="x"'


def test_the_keys_of_providers_are_left_out() -> None:
    assert resolve_variables({**PROVIDERS, "a": "b"}, RealDisk(), {}) == {"a": "b"}


def test_a_variable_of_an_unlisted_provider_stays(secrets: Path) -> None:
    assert resolve("${vault:password}") == "${vault:password}"
    assert resolve("$1 ${no} {x:y}") == "$1 ${no} {x:y}"


def test_a_resolved_value_is_not_resolved_again() -> None:
    given = {**PROVIDERS, "key": "${env:A}"}
    found = resolve_variables(given, RealDisk(), {"A": "${env:B}", "B": "b"})
    assert found["key"] == "${env:B}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:ABSENT}", "the environment variable ABSENT is not set"),
        ("${env:/path:HOME}", "a path is not supported"),
        ("${file:HERE/secrets.properties:absent}", "has no key absent"),
        ("${file:HERE/absent:password}", "No such file"),
        ("${file:password}", "names no file"),
        ("${dir:HERE/absent:password}", "is not a directory"),
        ("${dir:HERE:absent}", "No such file"),
        ("${dir:HERE:../password}", "is not the name of a file"),
        ("${dir:HERE:..}", "is not the name of a file"),
    ],
)
def test_a_variable_without_a_value_is_an_error_with_its_place(
    secrets: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigProviderError) as raised:
        resolve(text.replace("HERE", str(secrets)))
    assert reason in str(raised.value)
    assert str(raised.value).startswith(f"key: {text.replace('HERE', str(secrets))}")


def test_allowed_paths_limit_what_is_read(secrets: Path) -> None:
    (secrets / "inside").mkdir()
    (secrets / "inside" / "file").write_text("a=b")
    (secrets / "inside-not").write_text("a=b")
    allowed = {"config_providers_file_param_allowed_paths": f"{secrets}/inside"}
    assert resolve(f"${{file:{secrets}/inside/file:a}}", **allowed) == "b"
    for path in (f"{secrets}/inside-not", f"{secrets}/inside/../inside-not"):
        with pytest.raises(ConfigProviderError, match=r"is not below allowed\.paths"):
            resolve(f"${{file:{path}:a}}", **allowed)
    allowed = {"config_providers_dir_param_allowed_paths": f"{secrets}/inside,{secrets}"}
    assert resolve(f"${{dir:{secrets}:password}}", **allowed) == "line\n"


def test_allowed_paths_must_be_absolute_and_exist(secrets: Path) -> None:
    for path in ("relative", f"{secrets}/absent", f"{secrets},,"):
        with pytest.raises(ConfigProviderError, match="must be absolute and exist"):
            resolve("x", config_providers_file_param_allowed_paths=path)


def test_the_allowlist_limits_environment_variables() -> None:
    pattern = {"config_providers_env_param_allowlist_pattern": "^KAFKA_"}
    assert resolve("${env:KAFKA_PASSWORD}", **pattern) == "from-env"
    with pytest.raises(ConfigProviderError, match="does not match HOME"):
        resolve("${env:HOME}", **pattern)
    with pytest.raises(ConfigProviderError, match="not a regular expression"):
        resolve("x", config_providers_env_param_allowlist_pattern="(")


def test_a_provider_needs_a_known_class() -> None:
    with pytest.raises(ConfigProviderError, match=r"config\.providers\.vault\.class: missing"):
        resolve_variables({"config.providers": "vault"}, RealDisk(), {})
    given = {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"}
    with pytest.raises(ConfigProviderError, match=r"com\.example\.Vault is unknown"):
        resolve_variables(given, RealDisk(), {})


def test_an_error_about_a_resolved_value_hides_it() -> None:
    key = ConfigKey("ssl.client.auth", ConfigType.STRING, None, "", one_of("none", "required"))
    with pytest.raises(ConfigError) as raised:
        key.parse(resolve("${env:KAFKA_PASSWORD}"))
    assert "from-env" not in str(raised.value)
    assert "[hidden]" in str(raised.value)
