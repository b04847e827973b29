"""Clients cannot be pickled or copied: the error says where to create them instead."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import cloudpickle

import barnabas
import barnabas.aio

ADDRESS = "127.0.0.1:1"
KEYS = {"bootstrap_servers": ADDRESS, "group_id": "g"}
COPIES: dict[str, Callable[[Any], object]] = {
    "pickle": pickle.dumps,
    # Spark pickles functions with it.
    "function": lambda client: cloudpickle.dumps(lambda: client),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def check_refused(client: object, copied: str) -> None:
    with pytest.raises(TypeError, match="create it inside the function that another process"):
        COPIES[copied](client)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: barnabas.Producer(ADDRESS),
        lambda: barnabas.Consumer(**KEYS),
        lambda: barnabas.ShareConsumer(**KEYS),
        lambda: barnabas.Admin(ADDRESS),
        lambda: barnabas.Client(ADDRESS),
    ],
    ids=["producer", "consumer", "share consumer", "admin", "client"],
)
def test_a_client_is_neither_pickled_nor_copied(make: Callable[[], Any], copied: str) -> None:
    with make() as client:
        check_refused(client, copied)


@pytest.mark.parametrize("copied", COPIES)
def test_the_parts_of_a_client_are_neither_pickled_nor_copied(copied: str) -> None:
    with barnabas.Client(ADDRESS) as client:
        check_refused(client.admin, copied)
        with client.producer() as producer:
            check_refused(producer, copied)


@pytest.mark.parametrize("copied", COPIES)
def test_an_asyncio_client_is_neither_pickled_nor_copied(copied: str) -> None:
    async def run() -> None:
        async with barnabas.aio.Producer(ADDRESS) as producer:
            check_refused(producer, copied)

    asyncio.run(run())
