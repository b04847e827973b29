"""A schema registry as a separate process beside a broker, and the settings of its clients."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .barnabas_command import barnabas_command
from .broker_process import ServerProcess
from .free_ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RegistryProcess"]

# The group waits so long for a killed registry: the least that brokers allow by default.
_SESSION = ("-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=1000")


class RegistryProcess(ServerProcess):
    """A `barnabas registry` process; use a `with` block, or `start` and `stop`.

    Each property for a client returns a new dictionary.

    Args:
        bootstrap: HOST:PORT of the brokers that store the schemas.
        directory: directory of the log file; a temporary directory when None.
        arguments: further command line arguments.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: str | Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-")
            directory = self._temporary.name
        super().__init__(Path(directory), "registry.log")
        self.bootstrap = bootstrap
        self._arguments = list(arguments)
        self.host = HOST
        (self.port,) = free_ports(1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://{self.host}:{self.port}"

    @property
    def confluent(self) -> dict[str, str]:
        """The argument of confluent-kafka's `SchemaRegistryClient`."""
        return {"url": self.url}

    @property
    def barnabas(self) -> dict[str, str]:
        """Keyword arguments for `barnabas.serializers.SchemaRegistry`."""
        return {"urls": self.url}

    @property
    def java(self) -> dict[str, str]:
        """Properties for Java's serializers, and for the commands of Barnabas by -X."""
        return {"schema.registry.url": self.url}

    @property
    def spark(self) -> dict[str, str]:
        """Options of the data source `barnabas` in Spark, beside `valueFormat`."""
        return {"registry": self.url}

    def close(self) -> None:
        """Stop the registry if it runs; remove the directory if it is temporary.

        A killed registry would stay a member of its group, and the next one would wait for it.
        """
        if self.is_running:
            self.stop()
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _command(self) -> list[str]:
        command = [*barnabas_command(), "registry"]
        command += ["--bootstrap-server", self.bootstrap, "--listen", f"{self.host}:{self.port}"]
        return [*command, "--exit-with", str(os.getpid()), *_SESSION, *self._arguments]
