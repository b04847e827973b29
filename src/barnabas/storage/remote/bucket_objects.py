"""The objects of a bucket as the place of a remote store (`s3://`, `gs://`, `az://`)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.runtime.object_store_errors import ObjectStoreError, StoreProblem
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteStorageError,
    RemoteUnavailableError,
    StoredObject,
)
from barnabas.storage.remote.segment_objects import STORE_FILE, parse_topic_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.runtime.object_store import ObjectStore

_ERRORS: dict[StoreProblem, type[RemoteStorageError]] = {
    StoreProblem.UNAVAILABLE: RemoteUnavailableError,
    StoreProblem.REFUSED: RemoteRefusedError,
    StoreProblem.FULL: RemoteFullError,
    StoreProblem.MISSING: RemoteMissingError,
    StoreProblem.BEYOND_END: RemoteDamagedError,
}


def clusters_in_bucket(store: ObjectStore, prefix: str) -> list[str]:
    """Return the ids of the clusters that have their objects below a prefix, sorted.

    Raises:
        RemoteStorageError: the store cannot be read.
    """
    with _translated():
        return sorted(
            name
            for name in store.directories(prefix)
            if store.head(_joined(prefix, f"{name}/{STORE_FILE}")) is not None
        )


class BucketObjects:
    """The objects of one cluster in a bucket. The calls are those of `RemoteObjects`."""

    advice = "barnabas.remote.storage or its options name another bucket, or the bucket was emptied"

    def __init__(self, store: ObjectStore, prefix: str, cluster_id: str) -> None:
        """Use a bucket. No request is made.

        Args:
            store: the bucket.
            prefix: beginning of all names, without a "/" at its ends; "" for none.
            cluster_id: the next part of all names.
        """
        self._store = store
        self._root = _joined(prefix, cluster_id)

    def place(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self._store.url}/{self._full(name)}"

    def put_file(self, name: str, local_path: str, size: int) -> None:
        """Store the first `size` bytes of a local file."""
        with _translated():
            try:
                self._store.put_file(self._full(name), local_path, size)
            except EOFError as error:
                raise RemoteDamagedError(str(error)) from error
            except FileNotFoundError as error:
                raise RemoteMissingError(f"{local_path}: {error.strerror}") from error
            except OSError as error:
                raise RemoteUnavailableError(f"{local_path}: {error.strerror}") from error

    def put(self, name: str, content: bytes) -> None:
        """Store an object. An older one is replaced."""
        with _translated():
            self._store.put(self._full(name), content)

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the bytes [start, end) of an object, or fewer if it ends before."""
        with _translated():
            return self._store.get(self._full(name), start, end)

    def size(self, name: str) -> int | None:
        """Return the size of an object; None if it is missing."""
        with _translated():
            return self._store.head(self._full(name))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. Missing ones are no error."""
        with _translated():
            self._store.delete([self._full(name) for name in names])

    def list(self, directory: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects below a directory in the order of their names, after a name."""
        start = len(self._root) + 1
        with _translated():
            for each in self._store.list(
                self._full(directory).rstrip("/"), self._full(after) if after else ""
            ):
                yield StoredObject(each.name[start:], each.size, each.modified_ms)

    def directories(self) -> Sequence[str]:
        """Return the names of the directories of topics."""
        with _translated():
            found = self._store.directories(self._root)
        return [name for name in found if parse_topic_directory(name) is not None]

    def close(self) -> None:
        """Let go of the connections."""
        self._store.close()

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}"


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the error of the remote tier for each error of the bucket."""
    try:
        yield
    except ObjectStoreError as error:
        raise _ERRORS[error.problem](str(error)) from error
