"""Registrations of brokers and controllers (KIP-631, KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas.metadata.metadata_version import register_broker_record_version
from barnabas.metadata.partition_registration import DIRECTORY_LOST, RESERVED_DIRECTORIES
from barnabas.protocol.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.protocol.records.nodes import (
        BrokerRegistrationChangeRecord,
    )

T = TypeVar("T")


class Endpoint(NamedTuple):
    """The address and security protocol of a listener."""

    host: str
    port: int
    # Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    security_protocol: int = 0


class SupportedLevels(NamedTuple):
    """The range of levels of a feature that a node supports."""

    min_level: int
    max_level: int


class _ListenerFields(Protocol):
    """A listener in a record or request."""

    name: str
    host: str
    port: int
    security_protocol: int


class _FeatureFields(Protocol):
    """A feature in a record or request."""

    name: str
    min_supported_version: int
    max_supported_version: int


def listeners_from(listed: Iterable[_ListenerFields]) -> dict[str, Endpoint]:
    """Return the endpoints of a record or request, by listener name."""
    return {each.name: Endpoint(each.host, each.port, each.security_protocol) for each in listed}


def listeners_as(listener_class: Callable[..., T], listeners: Mapping[str, Endpoint]) -> list[T]:
    """Return listeners in the class `listener_class` of a record or request."""
    return [
        listener_class(
            name=name,
            host=each.host,
            port=each.port,
            security_protocol=each.security_protocol,
        )
        for name, each in listeners.items()
    ]


def features_from(listed: Iterable[_FeatureFields]) -> dict[str, SupportedLevels]:
    """Return the supported levels of a record or request, by feature name."""
    return {
        each.name: SupportedLevels(each.min_supported_version, each.max_supported_version)
        for each in listed
    }


def features_as(
    feature_class: Callable[..., T], features: Mapping[str, SupportedLevels]
) -> list[T]:
    """Return features in the class `feature_class` of a record or request."""
    return [
        feature_class(
            name=name,
            min_supported_version=levels.min_level,
            max_supported_version=levels.max_level,
        )
        for name, levels in features.items()
    ]


class BrokerRegistration(msgspec.Struct, frozen=True):
    """The registration of a broker process."""

    id: int
    # Log end offset at the registration. It distinguishes successive processes of one broker id.
    epoch: int
    incarnation_id: bytes
    # Endpoints by listener name.
    listeners: Mapping[str, Endpoint]
    supported_features: Mapping[str, SupportedLevels]
    rack: str | None = None
    # A fenced broker leads no partition and is in no ISR.
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating: bool = False
    directories: tuple[bytes, ...] = ()
    # Directories that take no new partitions (KIP-1066); None until the broker reports them.
    cordoned_directories: tuple[bytes, ...] | None = None

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        """Create the registration that a RegisterBrokerRecord declares."""
        cordoned = record.cordoned_log_dirs
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=listeners_from(record.end_points),
            supported_features=features_from(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating=record.is_migrating_zk_broker,
            directories=tuple(sorted(record.log_dirs)),
            cordoned_directories=None if cordoned is None else tuple(cordoned),
        )

    def merge(self, change: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Return this registration with `change` applied."""
        cordoned = change.cordoned_log_dirs
        return replace(
            self,
            fenced=self.fenced if change.fenced == 0 else change.fenced > 0,
            in_controlled_shutdown=(
                self.in_controlled_shutdown or change.in_controlled_shutdown > 0
            ),
            directories=tuple(sorted(change.log_dirs)) or self.directories,
            cordoned_directories=(
                self.cordoned_directories if cordoned is None else tuple(cordoned)
            ),
        )

    @property
    def is_leaving(self) -> bool:
        """Whether the broker moves its leaderships away before it shuts down."""
        return self.in_controlled_shutdown and not self.fenced

    @property
    def is_cordoned(self) -> bool:
        """Whether all its directories take no new partitions (KIP-1066)."""
        cordoned = self.cordoned_directories
        return bool(cordoned) and set(self.directories).issubset(cordoned or ())

    def has_online(self, directory: bytes) -> bool:
        """Return whether replicas in a directory of this broker can be used (KIP-858)."""
        if directory == DIRECTORY_LOST:
            return False
        if directory in RESERVED_DIRECTORIES or not self.directories:
            return True
        return directory in self.directories

    def with_fenced(self, fenced: bool) -> BrokerRegistration:
        """Return this registration with another fenced state."""
        return replace(self, fenced=fenced)

    def to_record(self, metadata_version: int) -> tuple[RegisterBrokerRecord, int]:
        """Return the record that declares this broker, and the record's version."""
        version = register_broker_record_version(metadata_version)
        cordoned = self.cordoned_directories
        record = RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating and version >= 2,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=listeners_as(BrokerEndpoint, self.listeners),
            features=features_as(BrokerFeature, self.supported_features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories) if version >= 3 else [],
            cordoned_log_dirs=list(cordoned) if version >= 4 and cordoned is not None else None,
        )
        return record, version


class ControllerRegistration(msgspec.Struct, frozen=True):
    """The registration of a controller process (KIP-919)."""

    id: int
    incarnation_id: bytes
    listeners: Mapping[str, Endpoint]
    supported_features: Mapping[str, SupportedLevels]
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        """Create the registration that a RegisterControllerRecord declares."""
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners=listeners_from(record.end_points),
            supported_features=features_from(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> tuple[RegisterControllerRecord, int]:
        """Return the record that declares this controller, and the record's version."""
        record = RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=listeners_as(ControllerEndpoint, self.listeners),
            features=features_as(ControllerFeature, self.supported_features),
        )
        return record, 0
