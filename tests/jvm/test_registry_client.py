"""Confluent's own Java client of schema registries, with the registry of Barnabas."""

from __future__ import annotations

import subprocess
from pathlib import Path

from barnabas.serializers import AvroDeserializer, AvroSerializer, SchemaRegistry
from barnabas.testing.registry_process import RegistryProcess
from jvm.java import TIMEOUT_S, java_command

SOURCE = Path(__file__).parent / "RegistryClient.java"
PREFIX = "java-client"
AIRPORT = '{"type":"record","name":"Airport","fields":[{"name":"code","type":"string"}]}'


def test_the_calls_of_confluents_java_client(schema_registry: RegistryProcess) -> None:
    registry = SchemaRegistry(schema_registry.url)
    written = AvroSerializer(registry, AIRPORT).serialize("java-other", {"code": "JFK"})
    assert written is not None
    command = java_command("registry-client", source=SOURCE)
    done = subprocess.run(
        [*command, "RegistryClient", schema_registry.url, PREFIX, written.hex()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    encoded = found.pop("encoded")
    assert found == {
        "again": "true",
        "version": "1",
        "latest": AIRPORT,
        "by id": AIRPORT,
        "versions": "[1]",
        "subjects": f"[{PREFIX}-value]",
        "level": "FULL",
        "compatible": "false",
        "reasons": "true",
        "conflict": "409/409",
        "reference": "true",
        "protected": "422/42206",
        "mode": "READONLY",
        "read only": "422/42205",
        "deleted": "[1]",
        "missing": "404/40401",
        "for ever": "[1]",
        "decoded": "JFK",
    }
    assert AvroDeserializer(registry)(bytes.fromhex(encoded)) == {"code": "LGA"}
