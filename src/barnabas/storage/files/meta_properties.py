"""Owner of a data directory: `meta.properties`, version 1 (KIP-631, KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import ZERO_UUID, uuid_from_string, uuid_to_string
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.settings.properties import PropertiesError, format_properties, parse_properties
from barnabas.storage.errors import InconsistentDirectoryError

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

FILE_NAME = "meta.properties"
_VERSION = "1"


def is_formatted(disk: Disk, directory: str) -> bool:
    """Return whether a directory has an identity."""
    return disk.exists(f"{directory}/{FILE_NAME}")


class MetaProperties(msgspec.Struct, frozen=True):
    """The identity of a data directory."""

    cluster_id: str
    node_id: int
    # 16 bytes; zero if the file has no id, because its format is older.
    directory_id: bytes = ZERO_UUID

    @classmethod
    def read(cls, disk: Disk, directory: str) -> MetaProperties | None:
        """Read the file; return None if the directory is not formatted.

        Raises:
            InconsistentDirectoryError: the file is invalid.
        """
        path = f"{directory}/{FILE_NAME}"
        if not disk.exists(path):
            return None
        try:
            values = parse_properties(disk.read(path).decode())
            version = values.get("version", "0")
            if version != _VERSION:
                raise InconsistentDirectoryError(
                    f"{path} has version {version!r}, but this broker reads version {_VERSION}"
                )
            directory_id = values.get("directory.id")
            return cls(
                values["cluster.id"],
                _node_id(values["node.id"]),
                _directory_id(directory_id) if directory_id else ZERO_UUID,
            )
        except KeyError as error:
            raise InconsistentDirectoryError(f"{path} lacks {error.args[0]}") from error
        except UnicodeDecodeError as error:
            raise InconsistentDirectoryError(
                f"{path} cannot be read: the file is not text; restore it from a backup, or copy "
                "it from another data directory of this node with a new directory.id"
            ) from error
        except (PropertiesError, ValueError) as error:
            raise InconsistentDirectoryError(f"{path} cannot be read: {error}") from error

    def write(self, disk: Disk, directory: str) -> None:
        """Write and sync the file."""
        values = {
            "node.id": str(self.node_id),
            "directory.id": uuid_to_string(self.directory_id),
            "version": _VERSION,
            "cluster.id": self.cluster_id,
        }
        disk.write_atomically(f"{directory}/{FILE_NAME}", format_properties(values).encode())


def _node_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"node.id is {text!r}, but must be a number")
    return int(text)


def _directory_id(text: str) -> bytes:
    try:
        return uuid_from_string(text)
    except ProtocolError:
        raise ValueError(f"directory.id is {text!r}, but must be 22 characters of base64") from None
