"""A bucket for tests, behind a proxy with faults; its objects can be looked at, lost and damaged.

The bucket server is `moto` or S3Proxy, a process of its own. Tests look at objects behind the
proxy, so that faults do not concern them.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from buckets.faults import Fault, flipped
from buckets.faulty_proxy import FaultyProxy
from buckets.moto_server import MotoServer
from buckets.s3proxy_server import S3ProxyServer

if TYPE_CHECKING:
    from pathlib import Path

NAME = "tier"
ACCESS_KEY, SECRET = "AKIATIERTIERTIERTIER", "secret-of-the-tier"
_AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
_TIMEOUT_S = 120.0
_OBJECT = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)


class Bucket:
    """A bucket, which exists, and is empty at first.

    Args:
        server: HOST:PORT of the bucket server.
        name: of the bucket.
    """

    def __init__(self, server: str, name: str = NAME) -> None:
        self.name = name
        self._server = server
        self.proxy = FaultyProxy(server)
        self.credentials = (ACCESS_KEY, SECRET)
        self._request("PUT", f"/{name}")

    @property
    def url(self) -> str:
        """The value of `barnabas.remote.storage`."""
        return f"s3://{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """The values of `barnabas.remote.storage.options`, without credentials."""
        return {"endpoint": self.proxy.address, "allow_http": "true", "region": "us-east-1"}

    @property
    def environment(self) -> dict[str, str]:
        """The credentials as variables of the environment."""
        key, secret = self.credentials
        return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

    @property
    def options_with_credentials(self) -> dict[str, str]:
        """All options of the store."""
        key, secret = self.credentials
        return self.options | {"access_key_id": key, "secret_access_key": secret}

    def settings(self) -> dict[str, str]:
        """Return the broker keys of the store."""
        options = ",".join(f"{k}={v}" for k, v in self.options_with_credentials.items())
        return {"barnabas.remote.storage": self.url, "barnabas.remote.storage.options": options}

    # Faults.

    def fail(self, fault: Fault) -> Fault:
        """Put a fault in force; return it."""
        return self.proxy.faults.add(fault)

    def hits(self, fault: Fault) -> int:
        """Return how many requests a fault has met."""
        return fault.hits

    def heal(self) -> None:
        """Remove all faults, and release the requests that they hold."""
        self.proxy.faults.heal()
        self.proxy.access_keys = frozenset()
        self.start()

    def stop(self) -> None:
        """Refuse connections, as a server that is down."""
        self.proxy.stop()

    def start(self) -> None:
        """Accept connections again."""
        self.proxy.start()

    # Objects.

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Return the sizes of all objects by their paths, sorted."""
        found: dict[str, int] = {}
        token = ""
        while True:
            query = {"list-type": "2", "prefix": prefix}
            if token:
                query["continuation-token"] = token
            text = self._request("GET", f"/{self.name}?{urlencode(query)}").decode()
            for each in _OBJECT.findall(text):
                found[_field(each, "Key")] = int(_field(each, "Size"))
            token = _field(text, "NextContinuationToken")
            if not token:
                return dict(sorted(found.items()))

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return self._request("GET", self._path(path))

    def put(self, path: str, content: bytes) -> None:
        """Store an object."""
        self._request("PUT", self._path(path), content)

    def remove(self, path: str) -> None:
        """Delete an object."""
        self._request("DELETE", self._path(path))

    def flip(self, path: str) -> None:
        """Flip a bit in the middle of an object."""
        self.put(path, flipped(self.read(path)))

    def truncate(self, path: str, size: int) -> None:
        """Shorten an object."""
        self.put(path, self.read(path)[:size])

    def clear(self) -> None:
        """Delete all objects."""
        for path in self.objects():
            self.remove(path)

    def close(self) -> None:
        """Stop the proxy."""
        self.proxy.close()

    def _path(self, path: str) -> str:
        return f"/{self.name}/{quote(path)}"

    def _request(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection(self._server, timeout=_TIMEOUT_S)
        try:
            # moto answers anonymous requests with errors, and checks no signatures.
            headers = {"Content-Length": str(len(body)), "Authorization": _AUTHORIZATION}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            assert response.status < 300, f"{method} {path}: {response.status} {content[:500]!r}"
            return content
        finally:
            connection.close()


def _field(text: str, name: str) -> str:
    """Return the text of the first element with a name; empty without one."""
    found = re.search(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return "" if found is None else unescape(found.group(1))


@contextmanager
def moto_bucket() -> Iterator[Bucket]:
    """Start `moto` with a bucket."""
    with MotoServer() as server:
        yield from _bucket(server.address)


@contextmanager
def s3proxy_bucket(directory: Path) -> Iterator[Bucket]:
    """Start S3Proxy with a bucket."""
    with S3ProxyServer(directory) as server:
        yield from _bucket(server.address)


def _bucket(address: str) -> Iterator[Bucket]:
    bucket = Bucket(address)
    try:
        yield bucket
    finally:
        bucket.close()
