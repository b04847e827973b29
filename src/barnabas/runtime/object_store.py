"""The door to object stores: S3 and what speaks as S3 does, Google Cloud Storage, Azure.

This is the only module that imports obstore, and only when a store is opened. obstore starts
threads of its own, which do not survive a fork: a process opens its stores after its fork. All
calls block without the interpreter lock, and can be made on several threads at a time.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.runtime.object_credentials import CredentialFile
from barnabas.runtime.object_store_errors import (
    ObjectStoreError,
    StoreOptionsError,
    StoreProblem,
    store_error,
)
from barnabas.runtime.packages import needed_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    T = TypeVar("T")

# Memory of an upload: the parts in flight, and the one that is read.
_PART_BYTES = 8 << 20
_PARTS_IN_FLIGHT = 4
_LIST_PAGE = 1_000
_READ_BYTES = 1 << 20
_CONNECT_TIMEOUT_MS = 5_000
_RETRIES_MAX = 10
_BACKOFF_MAX = timedelta(seconds=5)

# Options of connections, for all stores. The values of the first two are names of PEM files.
_FILE_OPTIONS = ("root_certificate", "proxy_ca_certificate")
_CONNECTION_OPTIONS = (
    *_FILE_OPTIONS,
    "allow_http",
    "allow_invalid_certificates",
    "pool_idle_timeout",
    "proxy_url",
)
_S3_OPTIONS = (
    "access_key_id",
    "checksum_algorithm",
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "endpoint",
    "imdsv1_fallback",
    "metadata_endpoint",
    "region",
    "request_payer",
    "role_arn",
    "role_session_name",
    "s3_express",
    "secret_access_key",
    "server_side_encryption",
    "session_token",
    "skip_signature",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
    "virtual_hosted_style_request",
    "web_identity_token_file",
)
_GCS_OPTIONS = (
    "application_credentials",
    "base_url",
    "bearer_token",
    "service_account",
    "service_account_key",
    "skip_signature",
)
_AZURE_OPTIONS = (
    "account_key",
    "account_name",
    "authority_host",
    "client_id",
    "client_secret",
    "credential_type",
    "encryption_key",
    "endpoint",
    "federated_token_file",
    "msi_endpoint",
    "msi_resource_id",
    "object_id",
    "sas_key",
    "skip_signature",
    "tenant_id",
    "token",
    "use_azure_cli",
    "use_emulator",
    "use_fabric_endpoint",
)
_OPTIONS = {"s3": _S3_OPTIONS, "gs": _GCS_OPTIONS, "az": _AZURE_OPTIONS}
_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
}
OBJECT_STORE_SCHEMES = tuple(_KINDS)


class StoreTimeouts(NamedTuple):
    """Limits of one call, ms."""

    # Of one request, with its answer.
    request_ms: int = 30_000
    # After the first failure of a call no more retries begin.
    retry_ms: int = 120_000


class ObjectEntry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    # Time of the last change, ms.
    modified_ms: int


def option_names(scheme: str) -> list[str]:
    """Return the names of the options that a store of this scheme has, sorted."""
    return sorted((*_OPTIONS[_KINDS[scheme]], *_CONNECTION_OPTIONS))


def open_object_store(
    bucket: str, options: Mapping[str, str], credentials: str, timeouts: StoreTimeouts
) -> ObjectStore:
    """Open a bucket. No request is made.

    Args:
        bucket: URL of the bucket, without a path.
        options: of the store and of its connections, by the names of `option_names`. They go
            before environment variables (`AWS_…`, `GOOGLE_…`, `AZURE_…`).
        credentials: path of a file with credentials, which go before `options`; "" for none.
        timeouts: limits of each call.

    Raises:
        MissingPackageError: obstore is not installed.
        StoreOptionsError: an option does not exist, or has a value that is not allowed.
    """
    scheme = bucket.partition("://")[0]
    unknown = sorted(options.keys() - set(option_names(scheme)))
    if unknown:
        raise StoreOptionsError(
            f"there is no option {', '.join(unknown)} of {scheme}://; those that exist are"
            f" {', '.join(option_names(scheme))}"
        )
    kind = _KINDS[scheme]
    file = CredentialFile(kind, credentials) if credentials else None
    made = _ClientMaker(kind, bucket, options, timeouts)
    return ObjectStore(bucket, lambda: made(file.options if file else {}), file)


def memory_store() -> ObjectStore:
    """Return a store in the memory of this process, for tests."""
    with needed_for("an object store"):
        from obstore.store import MemoryStore
    store = MemoryStore()
    return ObjectStore("memory:", lambda: store, None)


class _ClientMaker:
    """Makes the obstore client of a bucket from its options."""

    def __init__(
        self, kind: str, bucket: str, options: Mapping[str, str], timeouts: StoreTimeouts
    ) -> None:
        self._kind = kind
        self._bucket = bucket
        self._options = {
            name: value for name, value in options.items() if name not in _CONNECTION_OPTIONS
        }
        self._connection: dict[str, Any] = {
            name: _pem(name, value) if name in _FILE_OPTIONS else value
            for name, value in options.items()
            if name in _CONNECTION_OPTIONS
        }
        self._connection_names = list(self._connection)
        request = timedelta(milliseconds=timeouts.request_ms)
        self._connection["timeout"] = request
        self._connection["connect_timeout"] = min(
            request, timedelta(milliseconds=_CONNECT_TIMEOUT_MS)
        )
        self._retries = {
            "max_retries": _RETRIES_MAX if timeouts.retry_ms else 0,
            "retry_timeout": timedelta(milliseconds=timeouts.retry_ms),
            "backoff": {"max_backoff": _BACKOFF_MAX},
        }

    def __call__(self, credentials: Mapping[str, str]) -> Any:
        with needed_for("a bucket as a store"):
            from obstore.exceptions import BaseError
            from obstore.store import AzureStore, GCSStore, S3Store
        stores: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
        config = {**self._options, **credentials}
        more: dict[str, Any] = {}
        if self._kind == "s3":
            # Its payloads go over TLS, and batches have checksums: SHA-256 of each part would take
            # most of the time of an upload.
            config.setdefault("unsigned_payload", "true")
            # Not all servers that speak as S3 does have deletes of several objects.
            config["disable_bulk_delete"] = "true"
            if credentials:
                # A token in the environment must not be mixed with keys of the file.
                more["credential_provider"] = _aws_provider(credentials)
                for name in ("access_key_id", "secret_access_key", "session_token"):
                    config.pop(name, None)
        try:
            return stores[self._kind].from_url(
                self._bucket,
                config=config,
                client_options=self._connection,
                retry_config=self._retries,
                **more,
            )
        except (BaseError, TypeError, ValueError) as error:
            # The error's text may have values.
            given = ", ".join(sorted({*self._options, *self._connection_names, *credentials}))
            raise StoreOptionsError(
                f"a value of {given or 'an environment variable'} is not allowed"
                f" ({type(error).__name__})"
            ) from None


def _aws_provider(credentials: Mapping[str, str]) -> Callable[[], Any]:
    found = {
        "access_key_id": credentials["access_key_id"],
        "secret_access_key": credentials["secret_access_key"],
        "token": credentials.get("session_token"),
        "expires_at": None,
    }
    return lambda: found


def _pem(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreOptionsError(f"{option}: {path}: {error.strerror}") from error


class ObjectStore:
    """A bucket. Names of objects are below its root. All calls raise ObjectStoreError only."""

    def __init__(
        self, url: str, connect: Callable[[], Any], credentials: CredentialFile | None
    ) -> None:
        """Make the first client.

        Args:
            url: of the bucket, for messages.
            connect: makes a client with the credentials of now.
            credentials: the file with credentials, if there is one.
        """
        self.url = url
        self._connect = connect
        self._credentials = credentials
        self._lock = threading.Lock()
        # Replaced when the credentials change. None after `close`.
        self._client: Any = connect()

    def put_file(self, name: str, local_path: str, size: int) -> None:
        """Store the first `size` bytes of a file. Large files are sent in parts.

        Raises:
            ObjectStoreError: the upload failed.
            OSError: the file cannot be read.
            EOFError: the file is shorter.
        """
        found = Path(local_path).stat().st_size
        if found < size:
            raise EOFError(f"{local_path}: the file has {found} bytes instead of {size}")

        def put(client: Any) -> None:
            content: Path | bytes | Iterator[bytes]
            if found == size:
                # obstore reads the file itself, without the interpreter lock.
                content = Path(local_path)
            elif size <= _PART_BYTES:
                content = b"".join(_beginning(local_path, size))
            else:
                content = _beginning(local_path, size)
            client.put(name, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT)

        self._call(name, put)

    def put(self, name: str, content: bytes) -> None:
        """Store an object. An older one is replaced."""
        self._call(
            name,
            lambda client: client.put(
                name, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
            ),
        )

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the bytes [start, end) of an object, or fewer if it ends before."""
        try:
            return memoryview(
                self._call(name, lambda client: client.get_range(name, start=start, end=end))
            )
        except ObjectStoreError as error:
            if error.problem is StoreProblem.BEYOND_END:
                return memoryview(b"")
            raise

    def head(self, name: str) -> int | None:
        """Return the size of an object; None if it does not exist."""
        try:
            return int(self._call(name, lambda client: client.head(name))["size"])
        except ObjectStoreError as error:
            if error.problem is StoreProblem.MISSING:
                return None
            raise

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects one after the other. Missing ones are no error."""
        for name in names:
            try:
                self._call(name, partial(_delete, name))
            except ObjectStoreError as error:
                if error.problem is not StoreProblem.MISSING:
                    raise

    def list(self, directory: str, after: str) -> Iterator[ObjectEntry]:
        """Yield the objects below a directory in pages, in the order that the store has.

        Args:
            directory: the beginning of the names, without the last "/"; "" for all.
            after: names up to this one are left out; "" for none.
        """
        place = f"{self.url}/{directory}"
        pages = self._call(
            directory,
            lambda client: client.list(
                directory or None, offset=after or None, chunk_size=_LIST_PAGE
            ),
        )
        while True:
            with _translated(place):
                page = next(pages, None)
            if page is None:
                return
            for each in page:
                modified_ms = int(each["last_modified"].timestamp() * 1_000)
                yield ObjectEntry(each["path"], each["size"], modified_ms)

    def directories(self, directory: str) -> Sequence[str]:
        """Return the names of the directories in a directory, without its own name."""
        found = self._call(directory, lambda client: client.list_with_delimiter(directory or None))
        return [each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"]]

    def close(self) -> None:
        """Let go of the client. Calls in progress end by themselves; later ones fail."""
        self._client = None

    def _call(self, name: str, call: Callable[[Any], T]) -> T:
        place = f"{self.url}/{name}"
        client = self._current_client(place)
        while True:
            try:
                with _translated(place):
                    return call(client)
            except ObjectStoreError as error:
                if error.problem is not StoreProblem.REFUSED:
                    raise
                # Perhaps the credentials were replaced since the last look at their file.
                renewed = self._current_client(place, is_urgent=True)
                if renewed is client:
                    raise
                client = renewed

    def _current_client(self, place: str, is_urgent: bool = False) -> Any:
        """Return the client with the credentials of now.

        Args:
            place: the object for the message.
            is_urgent: whether the store has refused the credentials.
        """
        if self._credentials is not None:
            with self._lock:
                if self._credentials.refresh(is_urgent) and self._client is not None:
                    try:
                        self._client = self._connect()
                    except StoreOptionsError as error:
                        raise ObjectStoreError(StoreProblem.REFUSED, f"{place}: {error}") from None
        client = self._client
        if client is None:
            raise ObjectStoreError(StoreProblem.UNAVAILABLE, f"{place}: the store is closed")
        return client


def _delete(name: str, client: Any) -> None:
    client.delete(name)


def _beginning(path: str, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file that is longer."""
    with Path(path).open("rb") as file:
        while size and (content := file.read(min(size, _READ_BYTES))):
            size -= len(content)
            yield content


@contextmanager
def _translated(place: str) -> Iterator[None]:
    """Raise ObjectStoreError for each error of obstore, whose client exists already."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        # The text of the cause may have secrets.
        raise store_error(error, place) from None
