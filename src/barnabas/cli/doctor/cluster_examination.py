"""Examine a cluster in a separate thread, so that no broker can block the command."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from barnabas.cli.doctor.address import examine_cluster
from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.probe import Address, Probes

__all__ = ["ClusterExamination"]


class ClusterExamination(threading.Thread):
    """A thread that examines the cluster behind the first address where a broker answers.

    Args:
        probes: The probes of the addresses; a broker answers at one of them at least.
        config: Configuration of the client.
    """

    def __init__(self, probes: Probes, config: Mapping[str, str]) -> None:
        super().__init__(name="barnabas-doctor", daemon=True)
        self._probes = probes
        self._config = dict(config)
        self._diagnosis = Diagnosis()
        self._error: Exception | None = None
        # The options that the advised commands need.
        self._context = copy_context()

    def run(self) -> None:
        """Examine the cluster; keep an unexpected error for `finish`."""
        try:
            self._context.run(self._examine)
        except Exception as error:  # noqa: BLE001 - raised again by `finish`
            self._error = error

    def finish(self, limit_s: float, diagnosis: Diagnosis) -> None:
        """Wait for the thread and add its findings; abandon the thread after the limit.

        Args:
            limit_s: Longest wait (s).
            diagnosis: Receives the findings.

        Raises:
            Exception: The error that ended the thread.
        """
        self.join(limit_s)
        if self._error is not None:
            raise self._error
        diagnosis.add(self._diagnosis)
        if self.is_alive():
            diagnosis.unexamined(
                f"the rest: the brokers did not answer all requests within {limit_s:.1f} s",
                "repair the reported problems first, then run this command again with a longer "
                "time (--timeout)",
            )

    def _examine(self) -> None:
        first = self._probes.first_kafka()
        assert first is not None
        with Client(_text(first), **self._config) as client:
            examine_cluster(client, *first, self._diagnosis)
            self._examine_ids(client, first)

    def _examine_ids(self, client: Client, first: Address) -> None:
        """Report addresses that belong to another cluster than the first address."""
        if len(self._probes.addresses) == 1:
            return
        try:
            known = client.describe_cluster().cluster_id
        except ClientError as error:
            self._diagnosis.unexamined(f"whether all addresses are of one cluster: {error}")
            return
        for address in self._probes.addresses:
            if address == first or self._probes.reply(address).peer is not self._probes.wanted:
                continue
            try:
                with Client(_text(address), **self._config) as other:
                    found = other.describe_cluster().cluster_id
            except ClientError as error:
                self._diagnosis.unexamined(f"the cluster of {_text(address)}: {error}")
                continue
            if found != known:
                self._diagnosis.wrong(
                    f"{_text(address)} belongs to cluster {found}, but {_text(first)} "
                    f"belongs to cluster {known}",
                    "list only brokers of one cluster in bootstrap.servers",
                )


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
