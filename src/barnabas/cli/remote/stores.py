"""The options of a command that name a store of remote segments, and the store that they open."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import EXIT_FAILED, option_record, problem
from barnabas.cli.common.printable import some
from barnabas.cli.common.variables import without_variables
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.spool import SpoolError
from barnabas.settings.config_providers import ConfigProviderError
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties
from barnabas.storage.remote.remote_storage import RemoteMissingError, RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.remote.config import StoreOptions
    from barnabas.storage.remote.remote_storage import RemoteStorage, StoredObject

# Stores that a program of the operator makes cannot be asked for their clusters.
_OWN_STORES = "python:"


class StoreArguments(NamedTuple):
    """The values of the options that name a store."""

    url: str | None
    # KEY=VALUE.
    store_options: tuple[str, ...] = ()
    credentials_file: str = ""
    # A server.properties.
    broker_file: str | None = None
    cluster: str | None = None


store_arguments = option_record(
    "store",
    StoreArguments,
    click.argument("url", required=False, metavar="[URL]"),
    click.option(
        "--option",
        "store_options",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of the store, such as endpoint=..., as in barnabas.remote.storage.options.",
    ),
    click.option(
        "--credentials-file",
        default="",
        metavar="FILE",
        help="A file with the credentials of the store, as barnabas.remote.credentials.file.",
    ),
    click.option(
        "--config",
        "broker_file",
        metavar="FILE",
        help="Take the store, its options and its credentials from this server.properties.",
    ),
    click.option(
        "--cluster",
        metavar="ID",
        help="The cluster whose segments are meant.  [default: the only one in the store]",
    ),
)


class Store(NamedTuple):
    """A store that can be opened."""

    url: str
    options: StoreOptions

    def clusters(self) -> list[str]:
        """Return the ids of the clusters with objects in the store.

        Raises:
            ConfigError: The URL or an option is not allowed.
            RemoteStorageError: The store does not answer.
        """
        from barnabas.storage.remote.opening import list_clusters

        return list_clusters(self.url, RealDisk(), self.options)

    def open(self, cluster: str | None) -> OpenStore:
        """Open the part of one cluster. Nothing is created.

        Args:
            cluster: The id of the cluster; None for the only one.

        Raises:
            ConfigError: The URL or an option is not allowed.
            RemoteStorageError: The store does not answer.
            click.UsageError: The store has no such cluster, or several ones.
        """
        from barnabas.storage.remote.opening import open_remote_storage

        cluster_id = self._chosen(cluster)
        storage = open_remote_storage(self.url, cluster_id, RealDisk(), self.options)
        return OpenStore(self.url.rstrip("/"), cluster_id, storage)

    def is_marked(self, cluster: str) -> bool:
        """Return whether this is the store of a cluster.

        Raises:
            ConfigError: The URL or an option is not allowed.
            RemoteStorageError: The store does not answer.
        """
        try:
            return cluster in self.clusters()
        except RemoteMissingError:
            # The directory does not exist.
            return False

    def mark(self, cluster: str) -> None:
        """Mark this as the store of a cluster.

        Raises:
            ConfigError: The URL or an option is not allowed.
            RemoteStorageError: The store cannot be used.
        """
        from barnabas.storage.remote.opening import open_remote_storage

        storage = open_remote_storage(self.url, cluster, RealDisk(), self.options)
        try:
            storage.check()
        finally:
            storage.close()

    def _chosen(self, cluster: str | None) -> str:
        if self.url.startswith(_OWN_STORES):
            if cluster is None:
                raise click.UsageError(f"{self.url}: give the id of the cluster: --cluster ID")
            return cluster
        found = self.clusters()
        if cluster in found:
            return cluster
        if not found:
            raise click.UsageError(
                f"{self.url} is not a store of remote segments: no cluster has the mark store.json "
                "there; give the URL of barnabas.remote.storage, and mount the file system of a "
                "directory first"
            )
        if cluster is not None:
            raise click.UsageError(
                f"{self.url} has no segments of cluster {cluster}, but of {some(found)}"
            )
        if len(found) > 1:
            raise click.UsageError(
                f"{self.url} has the segments of several clusters: give --cluster ID with one of "
                f"{some(found, 20)}"
            )
        return found[0]


class OpenStore(NamedTuple):
    """The part of one cluster in a store."""

    url: str
    cluster_id: str
    storage: RemoteStorage

    def place(self, name: str) -> str:
        """Return the full name of an object for messages."""
        return f"{self.url}/{self.cluster_id}/{name}"


def objects_of(storage: RemoteStorage, topic: str) -> Iterator[StoredObject]:
    """Yield the objects of a topic, and of deleted topics of this name, in the order of names.

    Raises:
        RemoteStorageError: The store does not answer.
    """
    from barnabas.storage.remote.segment_objects import parse_topic_directory, shortened_topic

    name = shortened_topic(topic)
    # The names of a topic's objects begin with its name and a dash, and so may those of others.
    prefix = f"{name}-"
    for found in storage.list_objects(prefix):
        if not found.name.startswith(prefix):
            return
        directory = parse_topic_directory(found.name.partition("/")[0])
        if directory is not None and directory[0] == name:
            yield found


def store_of(arguments: StoreArguments) -> Store | None:
    """Return the store that the options of a command name; None if they name none.

    Raises:
        ConfigError: An option or a key of the file is not allowed.
        click.UsageError: The file cannot be read, or its broker has no remote tier.
    """
    from barnabas.storage.remote.config import StoreOptions, parse_store_options

    if arguments.broker_file is not None:
        found = _from_broker_file(arguments.broker_file)
        own = parse_store_options(arguments.store_options)
        options = StoreOptions(
            options={**found.options.options, **own},
            credentials_file=arguments.credentials_file or found.options.credentials_file,
            request_timeout_ms=found.options.request_timeout_ms,
            retry_timeout_ms=found.options.retry_timeout_ms,
        )
        return Store(arguments.url or found.url, options)
    if arguments.url is None:
        if arguments.store_options or arguments.credentials_file:
            raise click.UsageError("give the URL of the store too, or --config server.properties")
        return None
    options = StoreOptions(
        options=parse_store_options(arguments.store_options),
        credentials_file=arguments.credentials_file,
    )
    return Store(arguments.url, options)


def required_store(arguments: StoreArguments) -> Store:
    """Return the store that the options of a command name.

    Raises:
        ConfigError: As `store_of`.
        click.UsageError: As `store_of`, or the options name no store.
    """
    found = store_of(arguments)
    if found is None:
        raise click.UsageError(
            "give the URL of the store, such as file:///DIR, or --config server.properties"
        )
    return found


def _from_broker_file(path: str) -> Store:
    # Imported only for files: it needs the configuration of a broker.
    from barnabas.server.configs.configuration import BROKER_KEYS, RENAMED_KEYS
    from barnabas.storage.remote.config import remote_log_config, store_options
    from barnabas.storage.remote_keys import SYSTEM_ENABLE

    try:
        text = parse_properties(RealDisk().read(path).decode("latin-1"))
        properties = without_variables(text)
    except OSError as error:
        raise click.UsageError(f"--config {path}: {error.strerror}") from None
    except (PropertiesError, ConfigProviderError) as error:
        raise click.UsageError(f"--config {path}: {error}") from None
    given = {RENAMED_KEYS.get(name, name): value for name, value in properties.items()}
    parsed = BROKER_KEYS.parse(given)
    if not parsed.boolean(SYSTEM_ENABLE):
        raise click.UsageError(
            f"--config {path}: the broker has no remote tier: {SYSTEM_ENABLE} is not true"
        )
    config = remote_log_config(parsed, given)
    return Store(config.barnabas_remote_storage, store_options(config))


@contextmanager
def errors_reported(status: int) -> Iterator[None]:
    """Print errors of the store and of the configuration; end with a status.

    Args:
        status: The exit status if the store or the cluster does not answer.
    """
    # A command prints its own messages instead of the log of the store.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        yield
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except (RemoteStorageError, SpoolError) as error:
        problem(str(error))
        sys.exit(status)
    except SystemExit as error:
        # `connected` ends a command with status 1 when no broker answers.
        sys.exit(status if error.code == EXIT_FAILED else error.code)
