"""Files with the credentials of an object store, which can change while a broker runs.

The file of AWS is an INI file with profiles. Those of GCS and Azure are JSON. A file that does not
parse is half written: the credentials before it stay in use.
"""

from __future__ import annotations

import configparser
import json
import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

from barnabas.runtime.object_store_errors import StoreOptionsError

_log = logging.getLogger(__name__)

# A changed file is noticed after so many seconds.
_CHECK_INTERVAL_S = 10.0
# A file that has just changed may be half written.
_SETTLED_S = 1.0
_FILE_BYTES_MAX = 1 << 20

_AWS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_key": "sas_key",
    "sas_token": "sas_key",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "tenant_id": "tenant_id",
    # As `az ad sp create-for-rbac --sdk-auth` writes them.
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "tenantId": "tenant_id",
}


class _Stamp(NamedTuple):
    """What tells versions of a file."""

    modified_ns: int
    size: int
    inode: int


class CredentialFile:
    """A file of credentials, which is read again after a change. Calls must not overlap."""

    def __init__(self, kind: str, path: str) -> None:
        """Read the file.

        Args:
            kind: "s3", "gs" or "az".
            path: of the file. For S3, the environment variable AWS_PROFILE names the profile.

        Raises:
            StoreOptionsError: the file cannot be read, or has no credentials.
        """
        self._kind = kind
        self._path = path
        self._checked_at = time.monotonic()
        self._stamp = self._stamp_now()
        # Options of the store. A change gives a new dictionary.
        self.options = self._read()
        # The reason why a changed file is not used; None if the file is in use.
        self._problem: str | None = None

    def refresh(self, is_urgent: bool = False) -> bool:
        """Read the file again if it has changed.

        Args:
            is_urgent: whether the store has refused the credentials, so that the file is looked at
                now. Otherwise it is looked at every ten seconds.

        Returns:
            Whether there are other credentials.
        """
        if not is_urgent and time.monotonic() - self._checked_at < _CHECK_INTERVAL_S:
            return False
        self._checked_at = time.monotonic()
        try:
            stamp = self._stamp_now()
            # A time in the future is that of a wrong clock.
            is_settled = not 0 <= time.time() - stamp.modified_ns / 1e9 < _SETTLED_S
            if stamp == self._stamp or not (is_settled or is_urgent):
                return False
            options = self._read()
        except StoreOptionsError as error:
            if str(error) != self._problem:
                _log.warning("Old credentials of the remote store stay in use: %s", error)
            self._problem = str(error)
            return False
        self._problem = None
        self._stamp = stamp
        has_changed = options != self.options
        self.options = options
        return has_changed

    def _stamp_now(self) -> _Stamp:
        try:
            found = Path(self._path).stat()
        except OSError as error:
            raise StoreOptionsError(f"{self._path}: {error.strerror}") from error
        return _Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> dict[str, str]:
        try:
            with Path(self._path).open(encoding="utf-8") as file:
                content = file.read(_FILE_BYTES_MAX)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "the file is no text"
            raise StoreOptionsError(f"{self._path}: {reason}") from error
        if self._kind == "s3":
            return self._aws(content)
        found = self._json(content)
        return self._gcs(found, content) if self._kind == "gs" else self._azure(found)

    def _aws(self, content: str) -> dict[str, str]:
        profile = os.environ.get("AWS_PROFILE") or "default"
        # Values may have "%".
        parser = configparser.ConfigParser(interpolation=None, default_section="")
        try:
            parser.read_string(content)
        except configparser.Error:
            # The error's text has lines of the file.
            raise StoreOptionsError(f"{self._path}: this is no INI file") from None
        if not parser.has_section(profile):
            raise StoreOptionsError(f"{self._path}: there is no profile [{profile}]")
        section = parser[profile]
        found = {ours: section[theirs] for theirs, ours in _AWS.items() if section.get(theirs)}
        if not {"access_key_id", "secret_access_key"} <= found.keys():
            raise StoreOptionsError(
                f"{self._path}: profile [{profile}] needs aws_access_key_id and"
                " aws_secret_access_key"
            )
        return found

    def _json(self, content: str) -> dict[str, object]:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise StoreOptionsError(f"{self._path}: this is no JSON") from None
        if not isinstance(found, dict):
            raise StoreOptionsError(f"{self._path}: this is no JSON object")
        return found

    def _gcs(self, found: dict[str, object], content: str) -> dict[str, str]:
        if found.get("type") == "service_account":
            missing = {"client_email", "private_key"} - found.keys()
            if missing:
                names = " and ".join(sorted(missing))
                raise StoreOptionsError(f"{self._path}: the service account has no {names}")
            return {"service_account_key": content}
        if found.get("type") == "authorized_user":
            return {"application_credentials": self._path}
        raise StoreOptionsError(
            f"{self._path}: the type is neither service_account nor authorized_user"
        )

    def _azure(self, found: dict[str, object]) -> dict[str, str]:
        options = {
            ours: value
            for theirs, ours in _AZURE.items()
            if isinstance(value := found.get(theirs), str) and value
        }
        is_complete = (
            "account_key" in options
            or "sas_key" in options
            or {"client_id", "client_secret", "tenant_id"} <= options.keys()
        )
        if not is_complete:
            raise StoreOptionsError(
                f"{self._path}: there must be account_key, or sas_token, or client_id,"
                " client_secret and tenant_id"
            )
        return options
