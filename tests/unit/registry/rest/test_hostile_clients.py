"""Hostile clients of a registry cost themselves only: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.registry.config import RegistrySettings
from barnabas.registry.serving import running_registry
from barnabas.testing.broker_on_loop import running_broker

SECONDS = 60
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def sent(port: int, data: bytes) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def answer(streams: Streams) -> tuple[int, Any]:
    """Return status and JSON of a response; status 0 if the connection was closed without one."""
    reader, writer = streams
    async with asyncio.timeout(SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split()
        body = await (reader.readexactly(int(length[0])) if length else reader.read())
    writer.close()
    try:
        return int(head.split()[1]), json.loads(body)
    except ValueError:
        return int(head.split()[1]), body


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def schema(text: object) -> bytes:
    return json.dumps({"schema": text if isinstance(text, str) else json.dumps(text)}).encode()


def run(test: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with (
            running_broker() as broker,
            running_registry(RegistrySettings(broker.bootstrap), lambda: None) as url,
        ):
            await test(int(url.rstrip("/").rpartition(":")[2]))

    asyncio.run(main())


async def check_served(port: int) -> None:
    """Check that a well-behaved client is answered."""
    get = b"GET /subjects HTTP/1.1\r\nHost: a\r\n\r\n"
    status, _ = await answer(await sent(port, get))
    assert status == 200
    body = schema('"int"')
    status, found = await answer(await sent(port, post("/subjects/good/versions", body)))
    assert (status, found) == (200, {"id": 1})


def test_malformed_requests_are_refused_and_others_are_served() -> None:
    deep = "[" * 200_000
    requests = {
        b"\0\xff garbage\r\n\r\n": 400,
        b"GET /subjects/%ff%00/versions HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        b"GET /%2e%2e/%2e%2e/etc HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        b"GET /contexts/ HTTP/1.1\r\nHost: a\r\n\r\n": 200,
        b"GET * HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        b"GET //// HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        b"GET /subjects?offset=" + b"9" * 5_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n": 404,
        post("/subjects/a/versions", b"{", 10**9): 413,
        post("/subjects/a/versions", b"[" * 1_000_000): 400,
        post("/subjects/a/versions", b'{"schema":"' + b"\\u0000" * 100_000 + b'"}'): 422,
        post("/subjects/a/versions", schema(deep)): 422,
        post("/subjects/a/versions", schema({"type": "array", "items": "a" * 900_000})): 422,
    }

    async def test(port: int) -> None:
        opened = [await sent(port, data) for data in requests]
        found = [(await answer(each))[0] for each in opened]
        assert dict(zip((data[:60] for data in requests), found, strict=True)) == {
            data[:60]: status for data, status in requests.items()
        }
        await check_served(port)

    run(test)


def test_connections_that_send_nothing_do_not_shut_out_others() -> None:
    async def test(port: int) -> None:
        halves = (b"", b"GET /subj", post("/subjects/a/versions", b"half", 100))
        silent = [await sent(port, half) for half in halves for _ in range(100)]
        await check_served(port)
        for _, writer in silent:
            writer.close()

    run(test)


def test_large_bodies_that_never_end_have_a_limit_of_memory() -> None:
    part = b" " * 1_900_000

    async def test(port: int) -> None:
        head = post("/subjects/a/versions", b"", 2_000_000)
        opened = [await sent(port, head + part) for _ in range(24)]
        waiting = [asyncio.create_task(answer(each)) for each in opened]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result()[0] for each in done} == {503}
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        await check_served(port)

    run(test)


def test_clients_that_do_not_read_large_lists_get_few_of_them() -> None:
    async def test(port: int) -> None:
        for number in range(20):
            body = schema({"type": "fixed", "name": f"N{number}", "size": 1, "doc": "x" * 900_000})
            path = f"/subjects/large-{number}/versions"
            assert (await answer(await sent(port, post(path, body))))[0] == 200
        get = b"GET /schemas HTTP/1.1\r\nHost: a\r\n\r\n"
        opened = [await sent(port, get) for _ in range(4)]
        heads = [await reader.readuntil(b"\r\n") for reader, _ in opened]
        assert sorted(head.split()[1] for head in heads) == [b"200", b"200", b"503", b"503"]
        for _, writer in opened:
            writer.transport.abort()
        while True:
            status, found = await answer(await sent(port, get))
            if status == 200:
                break
        assert len(found) == 20

    run(test)


def test_many_heavy_schemas_do_not_delay_reads() -> None:
    fields = [{"name": f"f{number}", "type": "string"} for number in range(3_000)]
    heavy = [
        schema({"type": "record", "name": f"R{number}", "fields": fields}) for number in range(12)
    ]

    async def test(port: int) -> None:
        registering = [
            await sent(port, post(f"/subjects/heavy-{number}/versions", body))
            for number, body in enumerate(heavy)
        ]
        waiting = asyncio.gather(*map(answer, registering))
        reads = 0
        while not waiting.done():
            get = b"GET /config HTTP/1.1\r\nHost: a\r\n\r\n"
            assert (await answer(await sent(port, get)))[0] == 200
            reads += 1
        # Reads were answered while the schemas were examined.
        assert reads > len(heavy)
        assert sorted(found["id"] for _, found in await waiting) == list(range(1, 13))

    run(test)
