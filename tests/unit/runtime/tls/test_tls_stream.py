"""What TLS streams promise beyond all streams: slices, backpressure, ends and failures."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from barnabas.runtime.disk import FileSlice
from barnabas.runtime.sockets import Chunk, Stream, StreamHandler
from barnabas.runtime.stepper import LoopStepper
from barnabas.runtime.tls.contexts import client_context, server_context
from barnabas.runtime.tls.handshakes import Handshakes
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.runtime.tls.tls_options import ClientAuth, TlsOptions
from barnabas.runtime.tls.tls_sockets import TlsSockets
from barnabas.runtime.tls.tls_stream import TlsDependencies, TlsStream
from certificates import Authority, shared_authority
from unit.runtime.streams import LIMIT_MS, Place, Recorder, real_place, sim_place
from unit.runtime.tls.handshaking import client_options, keys_of, server_options


@pytest.fixture(params=["real", "sim"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "sim":
        yield sim_place(1)
        return
    stepper = LoopStepper()
    yield real_place(stepper)
    stepper.close()


class Tapped:
    """The inner stream of a TLS stream, whose output a test reads and changes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.written: list[bytes] = []
        self.change: Callable[[bytes], bytes] = lambda data: data
        self.most_buffered = 0

    def write(self, chunks: Sequence[Chunk]) -> bool:
        data = [self.change(bytes(chunk)) for chunk in chunks]  # type: ignore[arg-type]
        self.written += data
        is_sent = self._stream.write(data)
        self.most_buffered = max(self.most_buffered, self._stream.buffered_bytes)
        return is_sent

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class Pair:
    """Both ends of a TLS connection, or why there is none."""

    def __init__(
        self,
        place: Place,
        server: TlsOptions | None = None,
        client: TlsOptions | None = None,
        wait: bool = True,
        receive_bytes: int = 0,
    ) -> None:
        runtime = place.runtime
        handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
        server_side = server_context(server or server_options())
        client_side = client_context(client or client_options())
        dependencies = TlsDependencies(runtime.timer, handshakes)
        if receive_bytes:
            dependencies = msgspec.structs.replace(
                dependencies, receive_buffer=memoryview(bytearray(receive_bytes))
            )
        sockets = TlsSockets(
            runtime.sockets,
            dependencies,
            lambda: server_side,
            lambda: client_side,
        )
        self.server = Recorder()
        self.listening = sockets.listen("127.0.0.1", 0, lambda: self.server)
        self.client = Recorder()
        self.failures: list[OSError] = []
        # By this name the certificate of the server is valid on both networks.
        self.attempt = sockets.connect(
            "127.0.0.1", self.listening.port, self.client, self.failures.append, LIMIT_MS
        )
        if wait:
            place.until(lambda: self.client.stream is not None or bool(self.failures))
            place.until(lambda: self.server.stream is not None)

    @property
    def near(self) -> TlsStream:
        assert isinstance(self.client.stream, TlsStream)
        return self.client.stream

    @property
    def far(self) -> TlsStream:
        assert isinstance(self.server.stream, TlsStream)
        return self.server.stream


def tap(stream: TlsStream) -> Tapped:
    assert stream._inner is not None
    tapped = Tapped(stream._inner)
    stream._inner = tapped  # type: ignore[assignment]
    return tapped


def test_small_chunks_share_a_record(place: Place) -> None:
    pair = Pair(place)
    tapped = tap(pair.near)
    pair.near.write([b"abcd"] * 1000)
    place.until(lambda: len(pair.server.data) == 4000)
    assert sum(map(len, tapped.written)) < 4100


def test_a_turn_encrypts_a_limited_amount() -> None:
    stepper = LoopStepper()
    place = real_place(stepper)
    pair = Pair(place)
    inner = pair.near._inner
    assert inner is not None

    class Endless(Tapped):
        """Takes everything at once."""

        def write(self, chunks: Sequence[Chunk]) -> bool:
            self.written += [bytes(chunk) for chunk in chunks]  # type: ignore[arg-type]
            return True

    endless = Endless(inner)
    pair.near._inner = endless  # type: ignore[assignment]
    pair.near.write([bytes(10_000_000)])
    assert 400_000 < sum(map(len, endless.written)) < 600_000
    assert pair.near.buffered_bytes > 9_000_000
    place.until(lambda: pair.near.buffered_bytes == 0)
    assert sum(map(len, endless.written)) > 10_000_000
    stepper.close()


def test_a_peer_that_does_not_read_costs_little_memory(place: Place, tmp_path: Path) -> None:
    pair = Pair(place)
    size = 20_000_000
    place.runtime.disk.make_directory(str(tmp_path))
    file = place.runtime.disk.open(f"{tmp_path}/f")
    content = os.urandom(1_000_000) * (size // 1_000_000)
    file.append(content)
    tapped = tap(pair.near)
    pair.far.pause_reading()
    place.settle()
    pair.near.write([b"head", FileSlice(file, 0, size), b"tail"])
    place.settle()
    # One slice is encrypted. The rest stays in the file.
    assert tapped.most_buffered < 300_000
    in_memory = [chunk for chunk in pair.near._queue if isinstance(chunk, bytes | memoryview)]
    assert sum(map(len, in_memory)) < 300_000
    assert pair.near.buffered_bytes > size // 2
    pair.far.resume_reading()
    place.until(lambda: len(pair.server.data) == size + 8)
    assert pair.server.data == b"head" + content + b"tail"


def test_a_handler_that_pauses_while_it_receives_gets_the_rest_later(place: Place) -> None:
    pair = Pair(place)
    server = pair.server
    usual = server.on_received

    def pause_then_receive(count: int) -> None:
        usual(count)
        pair.far.pause_reading()

    server.on_received = pause_then_receive  # type: ignore[method-assign]
    server._buffer = bytearray(1000)
    data = os.urandom(50_000)
    pair.near.write([data])
    while len(server.data) < len(data):
        before = len(server.data)
        place.until(lambda before=before: len(server.data) > before)  # type: ignore[misc]
        place.settle()
        assert len(server.data) == before + min(1000, len(data) - before)
        pair.far.resume_reading()
    assert server.data == data


def test_a_peer_that_sends_much_leaves_other_work_its_turns() -> None:
    stepper = LoopStepper()
    place = real_place(stepper)
    receive_bytes = 16 * 1024
    pair = Pair(place, receive_bytes=receive_bytes)
    data = os.urandom(600_000)
    # Bytes that the server has received at the start of each turn.
    received: list[int] = []

    def note_turn() -> None:
        received.append(len(pair.server.data))
        if received[-1] < len(data):
            place.runtime.timer.call_soon(note_turn)

    pair.far.pause_reading()
    pair.near.write([data])
    place.settle()
    pair.far.resume_reading()
    note_turn()
    place.until(lambda: received[-1] == len(data))
    assert pair.server.data == data
    turns = [after - before for before, after in itertools.pairwise(received)]
    assert max(turns) <= 2 * receive_bytes
    stepper.close()


def test_bytes_that_a_paused_handler_left_are_not_lost_to_another_connection(place: Place) -> None:
    pair = Pair(place)
    server = pair.server
    usual = server.on_received

    def pause_then_receive(count: int) -> None:
        usual(count)
        pair.far.pause_reading()

    server.on_received = pause_then_receive  # type: ignore[method-assign]
    server._buffer = bytearray(1000)
    data = os.urandom(60_000)
    pair.near.write([data])
    place.until(lambda: len(server.data) > 0)
    place.settle()
    # All connections share this buffer.
    shared = pair.far._dependencies.receive_buffer
    shared[:] = bytes(len(shared))
    server.on_received = usual  # type: ignore[method-assign]
    pair.far.resume_reading()
    place.until(lambda: len(server.data) == len(data))
    assert server.data == data


def test_small_and_large_chunks_keep_their_order(place: Place) -> None:
    pair = Pair(place)
    pair.far.pause_reading()
    place.settle()
    chunks = [b"%d" % number * (300_000 if number % 3 == 0 else 5) for number in range(60)]
    for chunk in chunks:
        pair.near.write([chunk])
    assert pair.near.buffered_bytes > 0
    pair.far.resume_reading()
    size = sum(map(len, chunks))
    place.until(lambda: len(pair.server.data) == size)
    assert pair.server.data == b"".join(chunks)
    place.until(lambda: pair.near.buffered_bytes == 0)
    assert pair.near.write([b"a", b"b"])


def test_a_changed_record_ends_the_connection_with_an_error(place: Place) -> None:
    pair = Pair(place)
    tapped = tap(pair.near)
    tapped.change = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    pair.near.write([b"secret"])
    place.until(lambda: pair.server.closed and pair.client.closed)
    assert pair.server.data == b""
    assert isinstance(pair.server.error, TlsError)


def test_data_that_a_client_sends_at_once_is_kept_until_the_handshake_is_done(
    place: Place,
) -> None:
    pair = Pair(place, wait=False)
    client = pair.client

    def on_connected(stream: Stream) -> None:
        client.stream = stream
        stream.write([b"first"])

    client.on_connected = on_connected  # type: ignore[method-assign]
    place.until(lambda: pair.server.data == b"first")


def test_output_written_before_the_handshake_is_sent_after_it(place: Place) -> None:
    pair = Pair(place, wait=False)
    server = pair.server

    def on_connected(stream: Stream) -> None:
        server.stream = stream
        assert not stream.write([b"early"])

    server.on_connected = on_connected  # type: ignore[method-assign]
    place.until(lambda: pair.client.data == b"early")
    assert pair.far.buffered_bytes == 0


def test_both_sides_get_the_reason_of_a_refused_certificate(place: Place) -> None:
    pair = Pair(place, server_options(keys=keys_of(Authority("Foreign").issue())))
    [failure] = pair.failures
    assert isinstance(failure, TlsError)
    assert failure.is_permanent
    assert "certificate of the peer is not valid" in str(failure)
    place.until(lambda: pair.server.closed)
    assert "unknown CA" in str(pair.server.error)


@pytest.mark.parametrize(
    ("server", "client", "words"),
    [
        (
            {"enabled_protocols": ("TLSv1.3",)},
            {"enabled_protocols": ("TLSv1.2",)},
            ("has TLSv1.3: check ssl.enabled", "has TLSv1.2: check ssl.enabled"),
        ),
        (
            {"enabled_protocols": ("TLSv1.2",)},
            {"enabled_protocols": ("TLSv1.3",)},
            ("has TLSv1.2: check ssl.enabled", "has TLSv1.3: check ssl.enabled"),
        ),
        (
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)},
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)},
            ("has TLSv1.2: check ssl.cipher", "has TLSv1.2: check ssl.cipher"),
        ),
    ],
)
def test_both_sides_name_their_versions_and_the_key(
    place: Place,
    server: dict[str, tuple[str, ...]],
    client: dict[str, tuple[str, ...]],
    words: tuple[str, str],
) -> None:
    pair = Pair(place, server_options(**server), client_options(**client))
    place.until(lambda: pair.server.closed)
    assert words[0] in str(pair.server.error)
    assert words[1] in str(pair.failures[0])


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_gets_the_error_that_it_needs_a_certificate(place: Place, version: str) -> None:
    """With TLS 1.3 only after its side of the handshake is complete."""
    pair = Pair(
        place,
        server_options(client_auth=ClientAuth.REQUIRED),
        client_options(enabled_protocols=(version,)),
    )
    place.until(lambda: bool(pair.failures) or pair.client.closed)
    error = pair.failures[0] if pair.failures else pair.client.error
    assert isinstance(error, TlsError)
    assert error.is_permanent
    assert "certificate" in str(error)


def test_the_certificate_of_a_client_is_known(place: Place) -> None:
    own = shared_authority().issue("CN=alice", names=())
    pair = Pair(
        place,
        server_options(client_auth=ClientAuth.REQUIRED),
        client_options(keys=keys_of(own)),
    )
    pair.near.write([b"x"])
    place.until(lambda: bool(pair.server.data))
    assert pair.far.peer_certificate == own.der
    assert pair.near.cipher[1] == "TLSv1.3"


def test_a_plaintext_peer_gets_an_alert_and_a_tls_client_fails_at_plaintext(
    place: Place,
) -> None:
    plain = Recorder()
    listening = place.runtime.sockets.listen("127.0.0.1", 0, lambda: plain)
    pair = Pair(place)
    failures: list[OSError] = []
    runtime = place.runtime
    dependencies = TlsDependencies(
        runtime.timer, Handshakes(runtime.clock, runtime.timer, runtime.executor)
    )
    context = client_context(client_options())
    sockets = TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)
    sockets.connect("127.0.0.1", listening.port, Recorder(), failures.append, LIMIT_MS)
    place.until(lambda: bool(plain.data))
    assert plain.stream is not None
    plain.stream.write([b"\0\0\0\x04abcd"])
    place.until(lambda: bool(failures))
    assert "does not speak TLS" in str(failures[0])
    pair.near.close()


def test_an_attempt_includes_the_time_of_the_handshake(place: Place) -> None:
    silent = Recorder()
    listening = place.runtime.sockets.listen("127.0.0.1", 0, lambda: silent)
    runtime = place.runtime
    dependencies = TlsDependencies(
        runtime.timer, Handshakes(runtime.clock, runtime.timer, runtime.executor)
    )
    context = client_context(client_options())
    sockets = TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)
    failures: list[OSError] = []
    client = Recorder()
    sockets.connect("127.0.0.1", listening.port, client, failures.append, 200)
    place.until(lambda: bool(failures))
    # A TimeoutError would say that the host does not accept connections.
    assert isinstance(failures[0], TlsError)
    assert "timed out" in str(failures[0])
    place.until(lambda: silent.closed)
    place.settle()
    assert client.stream is None
    assert len(failures) == 1


def test_an_attempt_can_be_cancelled_during_the_handshake(place: Place) -> None:
    silent = Recorder()
    listening = place.runtime.sockets.listen("127.0.0.1", 0, lambda: silent)
    runtime = place.runtime
    dependencies = TlsDependencies(
        runtime.timer, Handshakes(runtime.clock, runtime.timer, runtime.executor)
    )
    context = client_context(client_options())
    sockets = TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)
    client: StreamHandler = Recorder()
    attempt = sockets.connect(
        "127.0.0.1", listening.port, client, lambda e: pytest.fail(str(e)), LIMIT_MS
    )
    place.until(lambda: bool(silent.data))
    attempt.cancel()
    place.until(lambda: silent.closed)


def test_a_simulation_with_tls_is_repeatable() -> None:
    own = shared_authority().issue(key="ed25519")

    def run() -> list[float]:
        place = sim_place(7)
        pair = Pair(place, server_options(keys=keys_of(own)))
        times = []
        for size in (10, 100_000, 3):
            pair.near.write([bytes(size)])
            wanted = len(pair.server.data) + size
            place.until(lambda wanted=wanted: len(pair.server.data) == wanted)  # type: ignore[misc]
            times.append(place.runtime.clock.monotonic_ms())
        return times

    assert run() == run()
