"""Values of the broker keys of tiered storage, and the URL of the store (KIP-405)."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from barnabas.runtime.object_store import OBJECT_STORE_SCHEMES, option_names
from barnabas.settings.definition import ConfigError
from barnabas.storage.remote_keys import (
    METADATA_LISTENER,
    METADATA_PREFIX,
    METADATA_TOPIC_KEYS,
    STORAGE,
    STORAGE_OPTIONS,
    SYSTEM_ENABLE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.settings.definition import ParsedConfig

_MIB = 1 << 20
_LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
_ALLOWED = (
    "file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX,"
    " or python:MODULE:FACTORY"
)
# The layout of Apache Kafka's LocalTieredStorage, whose key `dir` names the directory.
KAFKA_LAYOUT = "kafka-local"
_LAYOUT_SUFFIX = f"?layout={KAFKA_LAYOUT}"
# In place of values that may be secret.
HIDDEN = "[hidden]"
# Characters that all stores accept in names, and that need no quotes in a URL.
_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()-]{1,255}")
_AZURE_HOSTS = (".dfs.core.windows.net", ".blob.core.windows.net", ".dfs.fabric.microsoft.com")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}(@[A-Za-z0-9.-]{1,254})?")


class StorageUrl(msgspec.Struct, frozen=True):
    """The store that `barnabas.remote.storage` names."""

    # "file", "python", or one of OBJECT_STORE_SCHEMES.
    scheme: str
    # An absolute path, MODULE:FACTORY, or the bucket.
    location: str
    # Beginning of the names in a bucket, without a "/" at its ends.
    prefix: str = ""
    # Of a directory: KAFKA_LAYOUT, or "" for the layout of this program.
    layout: str = ""


class StoreOptions(msgspec.Struct, frozen=True):
    """How a bucket is reached. Times in ms."""

    # By the names that the store has for them. The values may be secret.
    options: dict[str, str] = {}
    # Path of a file with credentials; "" for none.
    credentials_file: str = ""
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 120_000

    def __repr__(self) -> str:
        return f"StoreOptions({', '.join(sorted(self.options))})"


class MetadataTopicConfig(msgspec.Struct, frozen=True):
    """Configuration of `__remote_log_metadata`, and of the broker's use of it. Times in ms."""

    remote_log_metadata_topic_replication_factor: int = 3
    remote_log_metadata_topic_num_partitions: int = 50
    # -1: no limit.
    remote_log_metadata_topic_retention_ms: int = -1
    remote_log_metadata_topic_min_isr: int = 2
    remote_log_metadata_consume_wait_ms: int = 120_000


class RemoteLogConfig(msgspec.Struct, frozen=True):
    """Values of the broker keys of tiered storage; times in ms, sizes in bytes."""

    # The URL of the store, which `parse_storage_url` has accepted.
    barnabas_remote_storage: str = ""
    # NAME=VALUE, separated by commas. The values may be secret.
    barnabas_remote_storage_options: str = ""
    barnabas_remote_credentials_file: str = ""
    barnabas_remote_request_timeout_ms: int = 30_000
    barnabas_remote_retry_timeout_ms: int = 120_000
    metadata_topic: MetadataTopicConfig = MetadataTopicConfig()
    remote_log_metadata_custom_metadata_max_bytes: int = 128
    barnabas_remote_segments_max: int = 2_000_000

    remote_log_manager_copier_thread_pool_size: int = 10
    remote_log_manager_expiration_thread_pool_size: int = 10
    barnabas_remote_copy_buffer_max_bytes: int = 128 * _MIB
    remote_log_manager_task_interval_ms: int = 30_000
    remote_log_manager_task_retry_backoff_ms: int = 500
    remote_log_manager_task_retry_backoff_max_ms: int = 30_000
    # Largest deviation from the delay, as a fraction of it.
    remote_log_manager_task_retry_jitter: float = 0.2
    remote_log_manager_copy_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_copy_quota_window_num: int = 11
    remote_log_manager_copy_quota_window_size_seconds: int = 1
    barnabas_remote_orphan_age_ms: int = 900_000
    barnabas_remote_verify_before_delete: bool = True

    remote_log_reader_threads: int = 10
    remote_log_reader_max_pending_tasks: int = 100
    remote_fetch_max_wait_ms: int = 500
    remote_list_offsets_request_timeout_ms: int = 30_000
    remote_log_manager_fetch_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_fetch_quota_window_num: int = 11
    remote_log_manager_fetch_quota_window_size_seconds: int = 1
    remote_log_index_file_cache_total_size_bytes: int = 1 << 30
    # -1: no limit.
    remote_log_index_file_cache_ttl_ms: int = 900_000
    barnabas_remote_index_memory_max_bytes: int = 32 * _MIB
    barnabas_remote_read_cache_max_bytes: int = 128 * _MIB
    barnabas_remote_read_range_max_bytes: int = 4 * _MIB
    # Number of ranges.
    barnabas_remote_read_ahead: int = 1


def remote_log_config(broker: ParsedConfig, given: Mapping[str, str]) -> RemoteLogConfig:
    """Return the configuration of the remote tier of a broker that enables it.

    Args:
        broker: the broker's configuration. A dynamic change gives a new one.
        given: all properties as text, for the keys of the metadata topic.

    Raises:
        ConfigError: the store is not given, or is not one of those that exist; or a value of the
            metadata topic is not allowed.
    """
    assert broker.boolean(SYSTEM_ENABLE)
    parse_storage_url(broker.string(STORAGE))
    return replace(
        broker.build(RemoteLogConfig), metadata_topic=metadata_topic_config(broker, given)
    )


def check_remote_log_config(
    broker: ParsedConfig, given: Mapping[str, str], listeners: Iterable[str], log_dirs: list[str]
) -> RemoteLogConfig:
    """Return the configuration of the remote tier, checked against the rest of the broker's.

    Args:
        broker: the broker's configuration.
        given: all properties as text.
        listeners: names of the broker's listeners.
        log_dirs: paths of the data directories.

    Raises:
        ConfigError: as `remote_log_config`; or the listener of the metadata does not exist, or the
            store is in a data directory, or does not have an option.
    """
    listener = broker.optional_string(METADATA_LISTENER)
    names = list(listeners)
    if listener is not None and listener.upper() not in names:
        raise ConfigError(METADATA_LISTENER, listener, f"one of {', '.join(names)}")
    config = remote_log_config(broker, given)
    store = parse_storage_url(config.barnabas_remote_storage)
    _check_options(store, config)
    if store.scheme == "file":
        _check_directory(store.location, log_dirs)
    return config


def store_options(config: RemoteLogConfig) -> StoreOptions:
    """Return how the bucket of a broker's configuration is reached.

    Raises:
        ConfigError: the options are not NAME=VALUE.
    """
    return StoreOptions(
        parse_store_options(_items(config.barnabas_remote_storage_options)),
        config.barnabas_remote_credentials_file,
        config.barnabas_remote_request_timeout_ms,
        config.barnabas_remote_retry_timeout_ms,
    )


def parse_store_options(items: Iterable[str]) -> dict[str, str]:
    """Return options of a store by their names.

    Args:
        items: texts as NAME=VALUE.

    Raises:
        ConfigError: a text has no name or no "=", or a name is there twice. The error has no value.
    """
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not (name and equals) or name in found:
            words = "options of the store as NAME=VALUE, separated by commas, each once"
            raise ConfigError(STORAGE_OPTIONS, HIDDEN, words)
        found[name] = value.strip()
    return found


def metadata_topic_config(broker: ParsedConfig, given: Mapping[str, str]) -> MetadataTopicConfig:
    """Return the values of the keys behind the prefix of the metadata manager.

    Raises:
        ConfigError: a value is not allowed; the error names the key with its prefix.
    """
    prefix = broker.string(METADATA_PREFIX)
    own: dict[str, str | None] = {
        name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)
    }
    try:
        return METADATA_TOPIC_KEYS.parse(own).build(MetadataTopicConfig)
    except ConfigError as error:
        raise ConfigError(prefix + error.key, error.value, error.allowed) from error


def parse_storage_url(text: str) -> StorageUrl:
    """Return the store that a value of `barnabas.remote.storage` names.

    Raises:
        ConfigError: it names none, or a kind of store that does not exist.
    """
    if not text:
        words = f"{_ALLOWED}; {SYSTEM_ENABLE}=true needs a store"
        raise ConfigError(STORAGE, text, words)
    scheme, _, rest = text.partition(":")
    if scheme == "python":
        module, colon, factory = rest.partition(":")
        if not (colon and all(part.isidentifier() for part in (*module.split("."), factory))):
            raise ConfigError(STORAGE, text, _ALLOWED)
        return StorageUrl(scheme, rest)
    if scheme in OBJECT_STORE_SCHEMES:
        return _bucket_url(text, scheme, rest)
    if scheme != "file":
        raise ConfigError(STORAGE, text, _ALLOWED)
    return _directory_url(text, rest)


def _directory_url(text: str, rest: str) -> StorageUrl:
    layout = KAFKA_LAYOUT if rest.endswith(_LAYOUT_SUFFIX) else ""
    rest = rest.removesuffix(_LAYOUT_SUFFIX)
    # No urlsplit: it raises errors of its own for brackets.
    path = unquote(rest.removeprefix("//"))
    if not (rest.startswith("///") and path.isprintable()) or "?" in rest or "#" in rest:
        words = (
            "file:/// and an absolute path, without a host, and without parameters other than"
            f" {_LAYOUT_SUFFIX}"
        )
        raise ConfigError(STORAGE, text, words)
    normal = posixpath.normpath("/" + path.strip("/"))
    if normal == "/":
        raise ConfigError(STORAGE, text, "file:/// and a directory that is not the root")
    return StorageUrl("file", normal, layout=layout)


def _check_directory(directory: str, log_dirs: list[str]) -> None:
    """Refuse a store that is one of the data directories, or lies inside of one."""
    for each in log_dirs:
        data = posixpath.normpath(posixpath.abspath(each))
        if posixpath.commonpath([data, directory]) == data:
            words = f"a directory outside of the data directory {data}"
            raise ConfigError(STORAGE, f"file://{directory}", words)


def _items(text: str) -> list[str]:
    return [item for item in text.split(",") if item.strip()]


def _check_options(store: StorageUrl, config: RemoteLogConfig) -> None:
    """Refuse options that the store does not have. The error has no value."""
    options = store_options(config).options
    if store.scheme not in OBJECT_STORE_SCHEMES:
        if options:
            words = f"no value: a store of {store.scheme}: has no options"
            raise ConfigError(STORAGE_OPTIONS, HIDDEN, words)
        return
    known = option_names(store.scheme)
    unknown = sorted(options.keys() - set(known))
    if unknown:
        words = f"options among {', '.join(known)}; {', '.join(unknown)} does not exist"
        raise ConfigError(STORAGE_OPTIONS, HIDDEN, words)


def _bucket_url(text: str, scheme: str, rest: str) -> StorageUrl:
    bucket, _, path = rest.removeprefix("//").partition("/")
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    is_prefix = all(_SEGMENT.fullmatch(part) and part.strip(".") for part in parts)
    has_account = "@" in bucket
    if (
        not (rest.startswith("//") and _BUCKET.fullmatch(bucket) and is_prefix)
        or has_account != bucket.endswith(_AZURE_HOSTS)
        or (has_account and scheme not in ("abfs", "abfss"))
    ):
        words = (
            f"{scheme}://BUCKET or {scheme}://BUCKET/PREFIX, without a query, with letters, digits"
            f" and !_.*'()- in the prefix. Other stores are {_ALLOWED}"
        )
        raise ConfigError(STORAGE, text, words)
    return StorageUrl(scheme, bucket, "/".join(parts))
