"""A first start with the file that Kafka ships, and with a listener on every interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerStartError, ServerProcess
from barnabas.testing.free_ports import free_ports
from conformance.records_read_back import read_back

FILE = Path(__file__).parent / "configs" / "combined-server.properties"


class Started(ServerProcess):
    """`barnabas start` with arguments of the test."""

    def __init__(self, directory: Path, *words: str) -> None:
        super().__init__(directory, "broker.log")
        self.words = list(words)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "barnabas.cli.main", "start", *self.words]


def combined(directory: Path, *more: str) -> tuple[Path, int]:
    """Write Kafka's file with free ports and another directory; return its path and a port."""
    client_port, controller_port = free_ports(2)
    text = FILE.read_text().replace("9092", str(client_port)).replace("9093", str(controller_port))
    text = text.replace("/tmp/kraft-combined-logs", str(directory / "data"))
    path = directory / "server.properties"
    path.write_text(text + "".join(f"{line}\n" for line in more))
    return path, client_port


def test_the_file_that_kafka_ships_starts_in_one_step(tmp_path: Path) -> None:
    path, port = combined(tmp_path)
    with Started(tmp_path, str(path)) as broker:
        assert broker.advertised_address == f"localhost:{port}"
        assert read_back(broker.advertised_address) == b"first"
        assert "WARNING" not in broker.log()
        broker.restart()
        assert read_back(broker.advertised_address) == b"first"


def test_ignored_keys_log_one_line_and_misspelt_keys_one_warning_each(
    tmp_path: Path,
) -> None:
    path, _ = combined(tmp_path, "num.partitons=3", "num.io.thread=3")
    with Started(tmp_path, str(path), "--log-level", "info") as broker:
        lines = [
            line for line in broker.log().splitlines() if "server.configs.configuration" in line
        ]
    info, *warnings = lines
    assert "INFO" in info
    for key in ("num.network.threads", "num.io.threads"):
        assert key in info
    assert len(warnings) == 2
    assert "did you mean num.partitions?" in warnings[0]
    assert "did you mean num.io.threads?" in warnings[1]


def test_the_error_of_a_listener_on_every_interface_shows_working_settings(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    words = ["--listen", f"0.0.0.0:{port}", "--data-dir", str(tmp_path / "data")]
    with pytest.raises(BrokerStartError):
        Started(tmp_path, *words).start()
    log = (tmp_path / "broker.log").read_text()
    found = re.search(r"add (--set) (advertised\.listeners=PLAINTEXT://(\S+))", log)
    assert found is not None
    with Started(tmp_path, *words, found[1], found[2]) as broker:
        assert broker.advertised_address == found[3]
        assert broker.advertised_address.endswith(f":{port}")
        # The listener on every interface is also reachable at the loopback address.
        broker.stop()
        broker.words[-1] = f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"
        broker.start()
        assert read_back(broker.advertised_address) == b"first"
