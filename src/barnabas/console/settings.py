"""The settings of a console, and the limits of its requests."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.access.users import LoginSettings
from barnabas.console.messages.key_versions import VersionLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.console.connect.rest import ConnectSettings
    from barnabas.console.history.history_file import HistoryFile
    from barnabas.console.history.prometheus import Prometheus
    from barnabas.console.messages.formats import FormatRule
    from barnabas.console.messages.masking import MaskRule
    from barnabas.serializers.registry import SchemaRegistry


class SearchLimits(NamedTuple):
    """The limits at which a search of messages pauses, even before the end of the topic."""

    # Records that are examined.
    records: int = 100_000_000
    # Bytes of keys, values and headers that are examined.
    size: int = 1 << 40
    # Time for which the search runs.
    seconds: float = 600.0
    # How long a page waits for its search before it shows how far the search is.
    page_seconds: float = 1.5
    # Offsets of all partitions together in one step back from the end of a topic.
    window: int = 20_000


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of one of several clusters."""

    # The first part of the paths of its pages.
    name: str
    bootstrap: str
    client: Mapping[str, str]
    metrics: tuple[str, ...] = ()
    registry: SchemaRegistry | None = None
    history: HistoryFile | None = None
    connect: tuple[ConnectSettings, ...] = ()
    prometheus: Prometheus | None = None


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings that the command line gives to a console."""

    bootstrap: str
    # Configuration of the client, without the bootstrap servers.
    client: Mapping[str, str]
    # Addresses of metrics listeners.
    metrics: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 8080
    # Names in the Host header besides the loopback names and `host`.
    allowed_hosts: tuple[str, ...] = ()
    allow_changes: bool = False
    login: LoginSettings = field(default_factory=LoginSettings)
    # Further clusters; with any, `bootstrap` and what belongs to it is not used.
    clusters: tuple[ClusterSettings, ...] = ()
    # The file of the audit log; None for memory only.
    audit_log: str | None = None
    # Costly requests of one client in a minute; 0 for any number.
    costly_per_minute: int = 120
    # Seconds between two samples of rates and lags.
    interval: float = 5.0
    # Longest time of all requests of a page to the cluster (s).
    timeout: float = 10.0
    search: SearchLimits = field(default_factory=SearchLimits)
    versions: VersionLimits = field(default_factory=VersionLimits)
    # Directories of projects of declarative pipelines.
    pipelines: tuple[str, ...] = ()
    # Addresses of drivers of Spark that serve metrics of their queries.
    queries: tuple[str, ...] = ()
    # For keys and values with a schema.
    registry: SchemaRegistry | None = None
    # The formats of topics that the operator chose.
    formats: tuple[FormatRule, ...] = ()
    # Rules that hide parts of records.
    masks: tuple[MaskRule, ...] = ()
    # Kafka Connect clusters, in the order of the pages.
    connect: tuple[ConnectSettings, ...] = ()
    # Keeps rates and lags over restarts; None: they begin anew with the console.
    history: HistoryFile | None = None
    # Has older rates than the console; None: there is none.
    prometheus: Prometheus | None = None

    @property
    def login_to_read(self) -> bool:
        """Whether pages need a log-in too.

        They do if the console can be reached from other machines, or can tell its users apart.
        """
        return not is_loopback(self.host) or self.login.knows_users

    @property
    def has_login(self) -> bool:
        """Whether there is anything to log in for."""
        return self.allow_changes or self.login_to_read

    @property
    def keeps_audit(self) -> bool:
        """Whether the audit log can have entries: a user can log in, or a file has older ones."""
        return self.has_login or self.audit_log is not None

    def of_cluster(self, cluster: ClusterSettings) -> ConsoleSettings:
        """Return the settings of one of several clusters."""
        return replace(
            self,
            bootstrap=cluster.bootstrap,
            client=cluster.client,
            metrics=cluster.metrics,
            registry=cluster.registry,
            history=cluster.history,
            connect=cluster.connect,
            prometheus=cluster.prometheus,
            clusters=(),
        )


def is_loopback(host: str) -> bool:
    """Return whether an address that a server listens on is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
