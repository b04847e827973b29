"""A real Prometheus with this project's configuration and rules, on free ports."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from barnabas.testing.free_ports import HOST, free_ports
from waiting import eventually

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "deploy/prometheus/prometheus.yml"
RULES = ROOT / "deploy/prometheus/barnabas-rules.yml"
FIRES_AFTER = "3s"
IS_INSTALLED = shutil.which("prometheus") is not None


class PrometheusServer:
    """Scrapes brokers and a driver of queries every second; a context manager.

    Alerts fire after FIRES_AFTER. `promtool test rules` checks the times of the rules themselves.
    """

    def __init__(self, directory: Path, brokers: Sequence[str], driver: str) -> None:
        self.directory = directory
        (port,) = free_ports(1)
        self.address = f"{HOST}:{port}"
        configuration = yaml.safe_load(CONFIGURATION.read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration["rule_files"] = [str(_quick_rules(directory))]
        for job, targets in zip(
            configuration["scrape_configs"], (list(brokers), [driver]), strict=True
        ):
            job["static_configs"] = [{"targets": targets}]
        self._file = directory / "prometheus.yml"
        self._file.write_text(yaml.safe_dump(configuration))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self.directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._file}",
                    f"--web.listen-address={self.address}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                ],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        eventually(self._is_ready, "Prometheus does not get ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: labels and a value each."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def query_range(self, expression: str, start: float, end: float) -> list[dict[str, Any]]:
        """The result of a query from `start` to `end` (seconds since 1970), a value a second."""
        words = {"query": expression, "start": str(start), "end": str(end), "step": "1"}
        found: list[dict[str, Any]] = self._get("query_range", **words)["result"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {each["metric"]["alertname"] for each in self.query('ALERTS{alertstate="firing"}')}

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=10):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _get(self, path: str, **words: str) -> dict[str, Any]:
        text = urllib.parse.urlencode(words)
        address = f"http://{self.address}/api/v1/{path}?{text}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())["data"]
        return found


def _quick_rules(directory: Path) -> Path:
    """Write the rules with short times, and return their file."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = FIRES_AFTER
    file = directory / RULES.name
    file.write_text(yaml.safe_dump(rules))
    return file
