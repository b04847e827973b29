"""Pods of the StatefulSet as processes: its own command and environment, and names that resolve.

Each pod has a loopback address of its own. Names of pods are in a hosts file that lies over
/etc/hosts in a mount namespace of each process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from barnabas.testing.free_ports import free_ports

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy/kubernetes/barnabas.yaml"
NAMESPACE = "events"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_OVER_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
_PORTS = {"kafka": "9092", "controller": "9093", "metrics": "9308"}


def documents() -> dict[str, dict[str, Any]]:
    """Objects of the manifest, by kind and name."""
    found = list(yaml.safe_load_all(MANIFEST.read_text()))
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def stateful_set() -> dict[str, Any]:
    """The StatefulSet."""
    return documents()["StatefulSet/barnabas"]


def container() -> dict[str, Any]:
    """Its only container."""
    [found] = stateful_set()["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def can_mount() -> bool:
    """Whether this user may make mount namespaces."""
    done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return done.returncode == 0


class Pods:
    """All pods of the set, by their ordinal; ended by `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count: int = stateful_set()["spec"]["replicas"]
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.addresses = {number: f"127.0.1.{number + 1}" for number in range(self.count)}
        self.hosts = directory / "hosts"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._write_hosts()

    def host(self, number: int) -> str:
        """The name that the headless service gives a pod."""
        service = stateful_set()["spec"]["serviceName"]
        return f"barnabas-{number}.{service}.{NAMESPACE}.svc.cluster.local"

    def move(self, number: int, address: str) -> None:
        """Give a pod that does not run another address, as a scheduler does."""
        self.addresses[number] = address
        self._write_hosts()

    def start(self, number: int) -> None:
        """Start a pod's container with its own command."""
        place = self.directory / f"pod-{number}"
        place.mkdir(exist_ok=True)
        configuration = documents()["ConfigMap/barnabas"]["data"]["server.properties"]
        configuration = configuration.replace("CLUSTER_ID", CLUSTER_ID)
        (place / "server.properties").write_text(self._adapted(configuration, place))
        words = container()["command"] + container()["args"]
        with (place / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                self.command([self._adapted(word, place) for word in words]),
                env=self._environment(number),
                stdout=log,
                stderr=log,
                cwd=place,
            )

    def stop(self, number: int) -> int:
        """Stop a pod as the kubelet does; returns the exit status."""
        self._processes[number].terminate()
        return self._processes[number].wait(120)

    def close(self) -> None:
        """Kill what runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def probe(self, name: str, number: int) -> int:
        """Ask as the kubelet would for a probe of the container; returns the HTTP status, or 0."""
        asked = container()[name]["httpGet"]
        address = f"{self.addresses[number]}:{self.ports[asked['port']]}"
        try:
            with urllib.request.urlopen(f"http://{address}{asked['path']}", timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def barnabas(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command where the names of the pods resolve, as another pod would."""
        return subprocess.run(
            self.command([sys.executable, "-m", "barnabas.cli.main", *words]),
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def command(self, words: list[str]) -> list[str]:
        """The words that run a command in a namespace where the names of the pods resolve."""
        return ["unshare", "--mount", "sh", "-c", _OVER_HOSTS, str(self.hosts), *words]

    def log(self) -> str:
        """What all pods have written."""
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("pod-*/log")))

    def _environment(self, number: int) -> dict[str, str]:
        fields = {
            "metadata.name": f"barnabas-{number}",
            "metadata.namespace": NAMESPACE,
            "status.podIP": self.addresses[number],
        }
        variables = {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container()["env"]
        }
        return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}

    def _adapted(self, text: str, place: Path) -> str:
        """The text with free ports and the directory of a pod."""
        for name, port in _PORTS.items():
            text = text.replace(f":{port}", f":{self.ports[name]}")
        return text.replace("/etc/barnabas", str(place)).replace("/var/lib/barnabas", str(place))

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost"]
        lines += [f"{address} {self.host(number)}" for number, address in self.addresses.items()]
        self.hosts.write_text("\n".join(lines) + "\n")
