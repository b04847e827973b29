"""A bucket server that is not ours: S3Proxy, a Java program, with its objects in a directory.

Maven provides its jars, as those of Apache Kafka (`jvm.maven`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from jvm.java import java_command
from jvm.java_application import JavaApplication

if TYPE_CHECKING:
    from pathlib import Path

JARS = "s3proxy"
_MAIN = "org.gaul.s3proxy.Main"


class S3ProxyServer:
    """The server, at a free port.

    Args:
        directory: for its objects, its settings and its output.
    """

    def __init__(self, directory: Path) -> None:
        objects = directory / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        properties = directory / "s3proxy.properties"
        properties.write_text(
            "s3proxy.endpoint=http://127.0.0.1:0\n"
            "s3proxy.authorization=none\n"
            "jclouds.provider=filesystem-nio2\n"
            f"jclouds.filesystem.basedir={objects}\n"
        )
        words = [*java_command(JARS), _MAIN, "--properties", str(properties)]
        self._process = JavaApplication(words, directory / "s3proxy.log")
        try:
            match = self._process.await_output(r"Started .*\{(127\.0\.0\.1:\d+)\}")
        except BaseException:
            self._process.kill()
            raise
        # HOST:PORT.
        self.address = match.group(1)

    def close(self) -> None:
        """End the process."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
