"""Opens the store that `barnabas.remote.storage` names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from barnabas.runtime.object_store import StoreTimeouts, open_object_store
from barnabas.runtime.object_store_errors import StoreOptionsError
from barnabas.runtime.packages import MissingPackageError
from barnabas.settings.key import ConfigError
from barnabas.storage.remote.bucket_objects import BucketObjects, clusters_in_bucket
from barnabas.storage.remote.config import HIDDEN, StoreOptions, parse_storage_url
from barnabas.storage.remote.directory_storage import DirectoryStorage, clusters_in_directory
from barnabas.storage.remote.local_tiered_layout import LocalTieredStorage, clusters_in_layout
from barnabas.storage.remote.object_storage import ObjectStorage, always
from barnabas.storage.remote_keys import CREDENTIALS_FILE, STORAGE, STORAGE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.object_store import ObjectStore
    from barnabas.storage.remote.config import StorageUrl
    from barnabas.storage.remote.remote_storage import RemoteStorage


def open_remote_storage(
    url: str,
    cluster_id: str,
    disk: Disk,
    options: StoreOptions | None = None,
    is_new: Callable[[], bool] = always,
) -> RemoteStorage:
    """Open the store of a cluster. This blocks. For a bucket no request is made.

    Args:
        url: names the store. `file:///DIR` is a directory, with `?layout=kafka-local` in the
            layout of Kafka's LocalTieredStorage. `s3://BUCKET/PREFIX`, `gs://` and `az://` are
            buckets. `python:MODULE:FACTORY` is a function that gets the cluster id, and returns an
            object with the methods of `RemoteStorage`.
        cluster_id: the cluster, which has its own part of the store.
        disk: the disk with the local segments.
        options: of a bucket; None for the defaults.
        is_new: returns whether a missing mark may be created, as in a new store. A function and
            the layout of Kafka do not ask it.

    Raises:
        ConfigError: there is no such store, or an option does not exist.
        RemoteStorageError: the store cannot be used.
    """
    store = parse_storage_url(url)
    if store.scheme == "python":
        return _factory(url, store.location)(cluster_id)
    if store.layout:
        return LocalTieredStorage(disk, store.location, cluster_id)
    if store.scheme == "file":
        return DirectoryStorage(disk, store.location, cluster_id, is_new)
    bucket = _open_bucket(url, store, options or StoreOptions())
    return ObjectStorage(BucketObjects(bucket, store.prefix, cluster_id), cluster_id, is_new)


def list_clusters(url: str, disk: Disk, options: StoreOptions | None = None) -> list[str]:
    """Return the ids of the clusters that have objects in a store, sorted. This blocks.

    Args:
        url: names the store, as for `open_remote_storage`; not `python:`.
        disk: the disk with a directory.
        options: of a bucket; None for the defaults.

    Raises:
        ConfigError: as `open_remote_storage`; or the store is a function, which has no list.
        RemoteStorageError: the store cannot be read.
    """
    store = parse_storage_url(url)
    if store.scheme == "python":
        raise ConfigError(STORAGE, url, "a directory or a bucket: the others have no list")
    if store.layout:
        return clusters_in_layout(disk, store.location)
    if store.scheme == "file":
        return clusters_in_directory(disk, store.location)
    bucket = _open_bucket(url, store, options or StoreOptions())
    try:
        return clusters_in_bucket(bucket, store.prefix)
    finally:
        bucket.close()


def _open_bucket(url: str, store: StorageUrl, options: StoreOptions) -> ObjectStore:
    try:
        return open_object_store(
            f"{store.scheme}://{store.location}",
            options.options,
            options.credentials_file,
            StoreTimeouts(options.request_timeout_ms, options.retry_timeout_ms),
        )
    except MissingPackageError as error:
        allowed = (
            "file:///DIRECTORY, as long as the extra `tiered` (obstore) is not installed; in a"
            " clone it is installed by: pip install '.[tiered]'"
        )
        raise ConfigError(STORAGE, url, allowed) from error
    except StoreOptionsError as error:
        if options.credentials_file and options.credentials_file in str(error):
            raise ConfigError(
                CREDENTIALS_FILE, options.credentials_file, f"a file with credentials: {error}"
            ) from error
        raise ConfigError(
            STORAGE_OPTIONS, HIDDEN, f"options of the store as NAME=VALUE: {error}"
        ) from error


def _factory(url: str, location: str) -> Callable[[str], RemoteStorage]:
    module, _, name = location.partition(":")
    try:
        found: object = getattr(import_module(module), name)
    except Exception as error:
        allowed = (
            "a function that Python can import: install its package beside barnabas, or name its"
            f" folder in PYTHONPATH ({type(error).__name__}: {error})"
        )
        raise ConfigError(STORAGE, url, allowed) from error
    if not callable(found):
        raise ConfigError(STORAGE, url, f"a function; {location} is none")
    return cast("Callable[[str], RemoteStorage]", found)
