"""A server with the APIs of S3 and Glue, from `moto`, in a process of its own.

In the process of its clients it could not answer while they keep Python's interpreter for
themselves.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Self

BUCKET = "lake"


class AwsServer:
    """The server, at a free port, with one bucket."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the server did not start"
        return self

    def __exit__(self, *_error: object) -> None:
        # The server runs until its input ends.
        self._process.communicate()


def _serve() -> None:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="KEY",
        aws_secret_access_key="SECRET",
    )
    client.create_bucket(Bucket=BUCKET)
    print(address, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    _serve()
