"""Reads metrics of Apache Kafka over JMX."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from jvm.java import QUICK, java_command
from jvm.kafka_process import KafkaProcess

_SOURCE = Path(__file__).parent / "JmxValues.java"
_JMX = "-Dcom.sun.management.jmxremote"


def machine_with_jmx(port: int) -> tuple[str, ...]:
    """Return Java options that serve MBeans at a port of the loopback address."""
    return (
        *QUICK,
        f"{_JMX}.port={port}",
        f"{_JMX}.rmi.port={port}",
        f"{_JMX}.host=127.0.0.1",
        f"{_JMX}.authenticate=false",
        f"{_JMX}.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )


class Jmx:
    """A reader of the MBeans of a Kafka that runs with `machine_with_jmx(port)`."""

    def __init__(self, kafka: KafkaProcess, port: int) -> None:
        assert kafka.is_running
        words = [*java_command("kafka", source=_SOURCE), "JmxValues", str(port)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def values(self, pattern: str) -> dict[tuple[str, str], str]:
        """Return the values of the MBeans of a pattern, by canonical name and attribute."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{pattern}\n")
        self._process.stdin.flush()
        found = {}
        for line in iter(self._process.stdout.readline, "\n"):
            assert line, "the reader of MBeans has ended"
            name, attribute, value = line.rstrip("\n").split("\t")
            found[name, attribute] = value
        return found
