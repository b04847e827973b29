"""Fixtures for buckets; a module of tests imports those that it uses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from buckets.bucket import Bucket, moto_bucket, s3proxy_bucket


@pytest.fixture(scope="module")
def moto() -> Iterator[Bucket]:
    """A bucket of `moto`."""
    with moto_bucket() as bucket:
        yield bucket


@pytest.fixture(scope="module")
def s3proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A bucket of S3Proxy."""
    with s3proxy_bucket(tmp_path_factory.mktemp("s3proxy")) as bucket:
        yield bucket
