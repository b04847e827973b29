"""`python -m bench.tls`: the loads of `bench.run` over TLS 1.3, compared with Apache Kafka.

Both brokers have the same certificate (elliptic curve P-256) and their default protocols and
ciphers. The brokers take turns in each load. The first round is a warm-up and does not count. The
table has the best figure of the others. The last rows are handshakes of one client after another,
without session resumption. `--json FILE` stores the figures.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.admin.security_files import DevelopmentAuthority
from bench import brokers
from bench.brokers import free_port
from bench.budgets import TLS
from bench.cases import add_rounds, new_parser
from bench.figures import Figures, show
from bench.report import installed, new_console, write_figures
from bench.run import GB, LOADS, round_trip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.brokers import Broker

HOST = "127.0.0.1"
HANDSHAKES = 300


@contextlib.contextmanager
def running_with_tls(name: str, directory: Path) -> Iterator[Broker]:
    """Run a broker whose clients connect with TLS.

    Args:
        name: name of the broker.
        directory: directory with ca.pem, and broker.pem with the broker's key and certificate.
    """
    plain, secure, controller = (free_port() for _ in range(3))
    listeners = f"PLAINTEXT://{HOST}:{plain},SSL://{HOST}:{secure}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
    }
    if name == "kafka":
        settings |= {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }
    with brokers.running(name, settings, port=plain) as broker:
        yield replace(broker, address=f"{HOST}:{secure}", authority=directory / "ca.pem")


def handshakes(broker: Broker) -> dict[str, float]:
    """Connect repeatedly, and return the figures by row."""
    times = []
    cpu = broker.cpu_seconds()
    for _ in range(HANDSHAKES):
        started = time.perf_counter()
        broker.connect().close()
        times.append(1e3 * (time.perf_counter() - started))
    cpu = broker.cpu_seconds() - cpu
    times.sort()
    return {
        "handshake p50, ms": times[len(times) // 2],
        "handshake p99, ms": times[len(times) * 99 // 100],
        "broker CPU of a handshake, ms": 1e3 * cpu / HANDSHAKES,
    }


def write_certificates(directory: Path) -> None:
    """Create ca.pem and broker.pem."""
    authority = DevelopmentAuthority("bench", days=1)
    issued = authority.issue("broker", (HOST,))
    (directory / "ca.pem").write_text(authority.own.certificate)
    (directory / "broker.pem").write_text(issued.key + issued.certificate)


def _named(found: Mapping[str, float]) -> dict[str, float]:
    return {TLS + row: value for row, value in found.items()}


def main() -> None:
    """Run all loads on all brokers and print the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--mb", type=int, default=500, help="MB of values of a full load")
    add_rounds(parser)
    options = parser.parse_args()
    console = new_console()
    names = installed(options.brokers, console)
    figures = Figures()
    volume = options.mb * GB // 1000
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
        write_certificates(directory)
        running = [stack.enter_context(running_with_tls(name, directory)) for name in names]
        for number in range(options.rounds + 1):
            counted = figures if number else Figures()
            for load in LOADS:
                for broker in running:
                    console.print(f"  round {number}: {broker.name}, {load.name}")
                    counted.note(broker.name, _named(load.run(broker, volume)))
            for broker in running:
                counted.note(broker.name, _named(round_trip(broker) | handshakes(broker)))
    show(figures, names, console)
    write_figures(options.json, figures.rows)


if __name__ == "__main__":
    main()
