"""Files with the credentials of object stores."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from barnabas.runtime.object_credentials import CredentialFile
from barnabas.runtime.object_store_errors import StoreOptionsError

AWS = """\
[default]
aws_access_key_id = AKIA1
aws_secret_access_key = abc%def=

[other]
aws_access_key_id = AKIA2
aws_secret_access_key = ghi
aws_session_token = token
region = eu-west-1
"""
ACCOUNT = {"type": "service_account", "client_email": "a@b", "private_key": "secret"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return tmp_path / "credentials"


def later(file: Path, seconds: float) -> None:
    """Let a file have changed that much earlier than now."""
    changed = file.stat().st_mtime - seconds
    os.utime(file, (changed, changed))


def test_a_profile_of_aws_is_the_default_or_that_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(AWS)
    assert CredentialFile("s3", str(file)).options == {
        "access_key_id": "AKIA1",
        "secret_access_key": "abc%def=",
    }
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert CredentialFile("s3", str(file)).options == {
        "access_key_id": "AKIA2",
        "secret_access_key": "ghi",
        "session_token": "token",
    }


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("s3", "", r"no profile \[default\]"),
        ("s3", "aws_access_key_id = secret", "no INI file"),
        ("s3", "[default]\naws_access_key_id = secret", "needs aws_access_key_id and"),
        ("s3", "[default]\naws_access_key_id = secret\naws_sec", "no INI file|needs"),
        ("s3", "[default\nsecret", "no INI file"),
        ("gs", "", "no JSON"),
        ("gs", "[1]", "no JSON object"),
        ("gs", '{"type": "secret"}', "neither service_account nor authorized_user"),
        ("gs", '{"type": "service_account", "private_key": "secret"}', "no client_email"),
        ("az", '{"account_name": "secret"}', "there must be account_key, or"),
        ("az", '{"client_id": "secret", "tenant_id": "secret"}', "there must be"),
        ("az", '{"account_key": 5}', "there must be"),
    ],
)
def test_a_file_without_credentials_is_refused_without_its_content(
    file: Path, kind: str, text: str, problem: str
) -> None:
    file.write_text(text)
    with pytest.raises(StoreOptionsError, match=problem) as raised:
        CredentialFile(kind, str(file))
    assert str(file) in str(raised.value)
    assert "secret" not in str(raised.value).replace("client_secret", "").replace(
        "aws_secret_access_key", ""
    )


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    with pytest.raises(StoreOptionsError, match="No such file"):
        CredentialFile("s3", str(file))
    file.write_bytes(b"\xff\xfe[default]")
    with pytest.raises(StoreOptionsError, match="no text"):
        CredentialFile("s3", str(file))


def test_json_of_google_cloud_is_a_service_account_or_a_user(file: Path) -> None:
    text = json.dumps(ACCOUNT)
    file.write_text(text)
    assert CredentialFile("gs", str(file)).options == {"service_account_key": text}
    file.write_text('{"type": "authorized_user"}')
    assert CredentialFile("gs", str(file)).options == {"application_credentials": str(file)}


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (
            {"account_name": "a", "account_key": "k"},
            {"account_name": "a", "account_key": "k"},
        ),
        ({"sas_token": "sv=1"}, {"sas_key": "sv=1"}),
        (
            {"clientId": "i", "clientSecret": "s", "tenantId": "t", "subscriptionId": "x"},
            {"client_id": "i", "client_secret": "s", "tenant_id": "t"},
        ),
    ],
)
def test_json_of_azure_is_a_key_a_token_or_a_principal(
    file: Path, given: dict[str, str], options: dict[str, str]
) -> None:
    file.write_text(json.dumps(given))
    assert CredentialFile("az", str(file)).options == options


def test_a_changed_file_is_read_when_it_has_settled(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(AWS)
    later(file, 100_000)
    credentials = CredentialFile("s3", str(file))
    monkeypatch.setattr("barnabas.runtime.object_credentials._CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr("barnabas.runtime.object_credentials._SETTLED_S", 1_000.0)
    assert not credentials.refresh()
    file.write_text(AWS.replace("AKIA1", "AKIA3"))
    assert not credentials.refresh()
    # A time in the future is that of a wrong clock, and does not count.
    for seconds, key_id in ((2_000, "AKIA3"), (-50_000, "AKIA5")):
        file.write_text(AWS.replace("AKIA1", key_id))
        later(file, seconds)
        assert credentials.refresh()
        assert credentials.options["access_key_id"] == key_id
        assert not credentials.refresh()


def test_a_changed_file_is_not_looked_at_before_ten_seconds_unless_it_is_urgent(file: Path) -> None:
    file.write_text(AWS)
    credentials = CredentialFile("s3", str(file))
    file.write_text(AWS.replace("AKIA1", "AKIA3"))
    later(file, 100)
    assert credentials.refresh(is_urgent=True)
    assert credentials.options["access_key_id"] == "AKIA3"


def test_a_half_written_or_missing_file_keeps_the_old_credentials(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(AWS)
    credentials = CredentialFile("s3", str(file))
    for text in ("", "[default]\naws_access_key_id = A", None):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        caplog.clear()
        for _ in range(2):
            assert not credentials.refresh(is_urgent=True)
        assert credentials.options["access_key_id"] == "AKIA1"
        (line,) = caplog.messages
        assert str(file) in line
    file.write_text(AWS.replace("AKIA1", "AKIA4"))
    assert credentials.refresh(is_urgent=True)
    assert credentials.options["access_key_id"] == "AKIA4"
