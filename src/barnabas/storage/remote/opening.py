"""Opens the store that `barnabas.remote.storage` names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from barnabas.settings.key import ConfigError
from barnabas.storage.remote.config import parse_storage_url
from barnabas.storage.remote.directory_storage import DirectoryStorage
from barnabas.storage.remote_keys import STORAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.remote.remote_storage import RemoteStorage


def open_remote_storage(url: str, cluster_id: str, disk: Disk) -> RemoteStorage:
    """Open the store of a cluster. This blocks.

    Args:
        url: names the store. `file:///DIR` is a directory. `python:MODULE:FACTORY` is a function
            that gets the cluster id, and returns an object with the methods of `RemoteStorage`.
        cluster_id: the cluster, which has its own part of the store.
        disk: the disk with the local segments.

    Raises:
        ConfigError: there is no such store.
        RemoteStorageError: the store cannot be used.
    """
    store = parse_storage_url(url)
    if store.scheme == "python":
        return _factory(url, store.location)(cluster_id)
    return DirectoryStorage(disk, store.location, cluster_id)


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
