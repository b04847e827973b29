"""`make fuzz`, second part: clients without a login attack TLS and SASL of a broker.

The broker must survive, send no response to requests that need a login, and close the connections.
Its memory and the turns of its event loop must stay bounded, and a client with a login is served.

    python -m fuzz.login_campaign --seconds 300 --seed 7
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import ssl
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec

from fuzz.campaign import finish_polite, start_polite, unexpected
from fuzz.login_attacks import FORBIDDEN, Logins
from fuzz.secured_broker import SecuredBroker
from fuzz.tls_attacks import TLS_ATTACKS
from loop_turns import LoopTurns, loop_turns
from waiting import PATIENCE_S, eventually

# Attacked connections that are open at the same time.
OPEN_MAX = 200
# Timeout of one response during an attack.
ANSWER_S = 30.0
# Time in which the broker must close all connections. The limit of handshakes is 10 s.
CLOSED_WITHIN_S = 60.0
# Maximum growth of the memory of a broker under attack.
MEMORY_GROWTH_MB_MAX = 150
# Maximum CPU time of one turn of the loop, including garbage collections.
TURN_CPU_MS_MAX = 100.0
TLS_SHARE = 0.5
# Attacks after which a connection may stay open, because a frame or TLS record is incomplete. It is
# closed after `connections.max.idle.ms`.
MAY_IDLE = frozenset({"damaged_frames", "broken_data"})
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Outcome:
    """Observations of a campaign. `problems` is empty after a success."""

    seed: int
    seconds: float = 0.0
    connections: int = 0
    by_attack: dict[str, int] = field(default_factory=dict)
    # Connections that the broker closed, and connections that this client closed at its limit.
    closed_by_broker: int = 0
    memory_mb_before: float = 0.0
    memory_mb_most: float = 0.0
    turns: LoopTurns | None = None
    # Time from the last attack until all connections were closed.
    drained_s: float = 0.0
    polite: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Wire:
    """One attacking connection, which stores all received bytes."""

    def __init__(self, end: socket.socket, attack: str = "") -> None:
        self.end = end
        # Name of the attack.
        self.attack = attack
        self.received = bytearray()
        # Start of the next frame in `received`.
        self._at = 0

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.end.sendall(data)

    def receive_frame(self) -> bytes | None:
        """Return the next frame; None if there is none in time, or the connection ended."""
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            unread = self.received[self._at :]
            if len(unread) >= 4:
                (length,) = struct.unpack_from(">i", unread)
                if len(unread) >= 4 + length:
                    self._at += 4 + length
                    return bytes(unread[4 : 4 + length])
            try:
                data = self.end.recv(1 << 16)
            except TimeoutError:
                return None
            if not data:
                return None
            self.received += data
        return None

    def is_closed(self) -> bool:
        """Read the available bytes; return whether the broker has closed the connection."""
        try:
            while data := self.end.recv(1 << 16):
                self.received += data
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        return True


class Campaign:
    """Attacks one broker."""

    def __init__(self, broker: SecuredBroker, key: Any, seed: int) -> None:
        self._broker = broker
        self._rng = random.Random(seed)
        self._logins = Logins(self._rng, key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._open: dict[Wire, float] = {}
        self._process = psutil.Process(broker.pid)
        self.outcome = Outcome(seed, memory_mb_before=self._memory_mb())

    def run(self, seconds: float, connections: int | None = None) -> None:
        """Attack for a time or a number of connections, then wait until all are closed."""
        began = time.monotonic()
        outcome = self.outcome
        while time.monotonic() - began < seconds and not outcome.problems:
            if connections is not None and outcome.connections >= connections:
                break
            outcome.connections += 1
            if self._rng.random() < TLS_SHARE:
                self._attack_tls()
            else:
                self._attack_login()
            if outcome.connections % 20 == 0:
                self._look()
        outcome.seconds = round(time.monotonic() - began, 1)
        self._drain()
        outcome.by_attack |= self._logins.sent_by_attack

    def _attack_tls(self) -> None:
        broker, rng = self._broker, self._rng
        address = rng.choice([broker.tls_address, broker.sasl_tls_address])
        end = socket.create_connection(address, ANSWER_S)
        attack = rng.choice(TLS_ATTACKS)
        counts = self.outcome.by_attack
        counts[attack.__name__] = counts.get(attack.__name__, 0) + 1
        with contextlib.suppress(OSError, ssl.SSLError):
            attack(end, rng)
        self._keep(Wire(end, attack.__name__))

    def _attack_login(self) -> None:
        broker = self._broker
        if self._rng.random() < 0.2:
            plain = socket.create_connection(broker.sasl_tls_address, ANSWER_S)
            end: socket.socket = self._context.wrap_socket(plain)
        else:
            end = socket.create_connection(broker.sasl_address, ANSWER_S)
        wire = Wire(end)
        wire.attack = self._logins.attack(wire)
        self._keep(wire)

    def _keep(self, wire: Wire) -> None:
        """Keep the connection open, and close the oldest one above the limit."""
        if wire.end.fileno() >= 0:
            wire.end.setblocking(False)
            self._open[wire] = time.monotonic()
        while len(self._open) > OPEN_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._check_received(oldest)
            with contextlib.suppress(OSError):
                oldest.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            oldest.end.close()

    def _look(self) -> None:
        """Remove connections that the broker has closed, and measure its memory."""
        outcome = self.outcome
        for wire in [each for each in self._open if each.is_closed()]:
            del self._open[wire]
            outcome.closed_by_broker += 1
            self._check_received(wire)
            wire.end.close()
        try:
            outcome.memory_mb_most = max(outcome.memory_mb_most, self._memory_mb())
        except psutil.Error as error:
            outcome.problems.append(f"the broker is gone: {error}")

    def _check_received(self, wire: Wire) -> None:
        if FORBIDDEN in wire.received:
            self.outcome.problems.append(
                f"a request without a login was answered: {bytes(wire.received[:400])!r}"
            )

    def _drain(self) -> None:
        """Wait until the broker has closed all connections except those that may be idle."""
        began = time.monotonic()
        while self._open and time.monotonic() - began < CLOSED_WITHIN_S:
            self._look()
            if all(each.attack in MAY_IDLE for each in self._open):
                break
            time.sleep(0.05)
        self.outcome.drained_s = round(time.monotonic() - began, 1)
        left = sorted({each.attack for each in self._open} - MAY_IDLE)
        if left:
            self.outcome.problems.append(f"connections were not closed after {left}")
        for wire in self._open:
            self._check_received(wire)
            wire.end.close()
        self._open.clear()

    def _memory_mb(self) -> float:
        return float(self._process.memory_info().rss / 1e6)


def run(seconds: float, seed: int, directory: Path, connections: int | None = None) -> Outcome:
    """Attack a new broker for a time or a number of connections."""
    key = ec.generate_private_key(ec.SECP256R1())
    with SecuredBroker(directory, key) as broker:
        keys = broker.client_keys()
        bootstrap = keys.pop("bootstrap.servers")
        polite = start_polite(bootstrap, keys)
        admin = AdminClient(broker.client_keys())
        # The group is listed from its first assignment on.
        eventually(lambda: all(_resources(admin)))
        before = _resources(admin)
        campaign = Campaign(broker, key, seed)
        outcome = campaign.run(seconds, connections) or campaign.outcome
        outcome.turns = loop_turns(broker.metrics_address)
        if _resources(admin) != before:
            outcome.problems.append(f"{_resources(admin)} instead of {before}")
        outcome.polite = finish_polite(polite, outcome.problems)
        outcome.problems += _problems(outcome, broker)
        return outcome


def _resources(admin: AdminClient) -> tuple[set[str], set[str]]:
    """Return the existing topics and groups."""
    topics = set(admin.list_topics(timeout=PATIENCE_S).topics)
    groups = {each.group_id for each in admin.list_consumer_groups().result().valid}
    return topics, groups


def _problems(outcome: Outcome, broker: SecuredBroker) -> list[str]:
    found = []
    if not broker.is_running:
        found.append("the broker's process has ended")
    growth = outcome.memory_mb_most - outcome.memory_mb_before
    if growth > MEMORY_GROWTH_MB_MAX:
        found.append(f"memory grew by {growth:.0f} MB, over {MEMORY_GROWTH_MB_MAX} MB")
    if outcome.turns is not None and outcome.turns.longest_cpu_ms > TURN_CPU_MS_MAX:
        found.append(f"a turn of the loop took {outcome.turns.longest_cpu_ms:.0f} ms of CPU time")
    return found + unexpected(broker.log())


def main() -> None:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--connections", type=int, help="end after this number of connections")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(options.seconds, options.seed, Path(directory), options.connections)
    print(json.dumps(asdict(outcome), indent=1))
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
