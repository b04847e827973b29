"""The HTTP listener of a node of several processes: their metrics, health and readiness in one.

Each process serves its own metrics and probes to this process only. A request here asks all of them
at once. Metrics get the label `broker` with the id of the process.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from barnabas.cli.nodes.node_process import ProcessState
from barnabas.metrics.catalogue import PROCESS_RESTARTS, PROCESS_UP
from barnabas.metrics.http_fetch import HttpFetch
from barnabas.metrics.http_listener import HttpListener, HttpResponse, text_response
from barnabas.metrics.merged_metrics import ProcessMetricsText, merged_text
from barnabas.metrics.metrics_listener import (
    CONTENT_TYPE,
    METRICS_PATH,
    READY_PATH,
    pieces,
    refuse_request,
)
from barnabas.metrics.registry import MetricFamily
from barnabas.server.configs.endpoints import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.cli.nodes.node_process import NodeProcess
    from barnabas.cli.nodes.node_supervisor import NodeSupervisor
    from barnabas.metrics.http_fetch import FetchResult
    from barnabas.runtime.loop import Runtime

# Time limit (ms) and maximum size of a response of one process.
_METRICS_LIMITS = (30_000.0, 32 << 20)
_PROBE_LIMITS = (3_000.0, 64 << 10)
# Texts that are in memory at once, because slow clients have not read them.
TEXTS_MAX = 4
_PROBLEM_CHARACTERS_MAX = 500


class _Gathered:
    """The metrics of all processes at one time."""

    def __init__(self) -> None:
        # By id of the process, in the order of the processes.
        self.texts: dict[int, ProcessMetricsText] = {}


class NodeFace:
    """Serves /metrics, /healthz and /readyz of a node.

    Args:
        supervisor: has the processes.
        runtime: has the loop's timers and sockets.
    """

    def __init__(self, supervisor: NodeSupervisor, runtime: Runtime) -> None:
        self._supervisor = supervisor
        self._runtime = runtime
        self._listener = HttpListener(runtime.timer, self._respond)
        self._gathered: WeakSet[_Gathered] = WeakSet()
        # HOST:PORT that is bound; empty before `listen`.
        self.address = ""

    def listen(self, address: str) -> None:
        """Bind HOST:PORT, which was checked before.

        Raises:
            OSError: the address cannot be bound.
        """
        parsed = parse_address(address)
        assert parsed is not None, address
        self.address = self._listener.bind(self._runtime.sockets, *parsed)

    def _respond(self, method: str, target: str, answer: Callable[[HttpResponse], None]) -> None:
        refusal = refuse_request(method, target)
        path = target.partition("?")[0]
        if refusal is not None:
            answer(refusal)
        elif path == METRICS_PATH:
            self._gather(answer)
        else:
            _Probe(self._supervisor, self._runtime, path, answer).start()

    # -- metrics ----------------------------------------------------------------------------

    def _gather(self, answer: Callable[[HttpResponse], None]) -> None:
        if len(self._gathered) >= TEXTS_MAX:
            answer(text_response(503, "other clients have not read their metrics yet; try again"))
            return
        gathered = _Gathered()
        self._gathered.add(gathered)
        running = [each for each in self._supervisor.processes if each.metrics_address]
        missing = len(running)

        def on_done(node_id: int, result: FetchResult) -> None:
            nonlocal missing
            missing -= 1
            if not result.is_ok:
                del gathered.texts[node_id]
            if missing == 0:
                answer(HttpResponse(200, self._body(gathered), CONTENT_TYPE))

        if not running:
            answer(HttpResponse(200, self._body(gathered), CONTENT_TYPE))
        for process in running:
            node_id = process.plan.node_id
            text = gathered.texts[node_id] = ProcessMetricsText(f'broker="{node_id}"')
            fetch = HttpFetch(
                self._runtime.timer,
                METRICS_PATH,
                *_METRICS_LIMITS,
                text.feed,
                partial(on_done, node_id),
            )
            _start(fetch, process, self._runtime)

    def _body(self, gathered: _Gathered) -> Iterator[bytes]:
        """Yield the text. Until its end, this generator keeps `gathered` among those in memory."""
        yield from pieces(self._families())
        yield from merged_text(list(gathered.texts.values()))

    def _families(self) -> Sequence[MetricFamily]:
        """Return the metrics of the supervisor about its processes."""
        processes = self._supervisor.processes
        tags = [(("broker", str(each.plan.node_id)), ("roles", _roles(each))) for each in processes]
        up = [float(each.state is ProcessState.READY) for each in processes]
        restarts = [float(each.restarts) for each in processes]
        return [
            MetricFamily(PROCESS_UP, list(zip(tags, up, strict=True))),
            MetricFamily(PROCESS_RESTARTS, list(zip(tags, restarts, strict=True))),
        ]


def _roles(process: NodeProcess) -> str:
    return ",".join(process.plan.configuration.cluster.roles)


class _Probe:
    """Asks all processes for their health or readiness, and answers one request."""

    def __init__(
        self,
        supervisor: NodeSupervisor,
        runtime: Runtime,
        path: str,
        answer: Callable[[HttpResponse], None],
    ) -> None:
        self._supervisor = supervisor
        self._runtime = runtime
        self._path = path
        self._answer = answer
        # The problem of each process, by the order of the processes; empty without a problem.
        self._problems: dict[str, str] = {}
        self._missing = 0

    def start(self) -> None:
        """Ask the processes that run. The answer may follow at once."""
        processes = self._supervisor.processes
        self._missing = len(processes)
        for process in processes:
            self._problems[process.plan.name] = ""
        for process in processes:
            problem = self._known_problem(process)
            if problem is not None or not process.metrics_address:
                self._on_answer(process, problem or "")
            else:
                self._ask(process)

    def _known_problem(self, process: NodeProcess) -> str | None:
        """Return why a process that cannot be asked is not ready; None if it can be asked."""
        if process.state is ProcessState.READY:
            return None
        if self._path != READY_PATH:
            # A process that starts is no reason to end the node.
            return ""
        if process.state is ProcessState.STARTING:
            again = f"started again after {process.end}" if process.end else "starting"
            return f"{again}, and not ready yet"
        return f"ended with {process.end}" if process.end else "not started"

    def _ask(self, process: NodeProcess) -> None:
        body: list[bytes] = []

        def on_done(result: FetchResult) -> None:
            if result.is_ok:
                self._on_answer(process, "")
            else:
                text = b"".join(body).decode(errors="replace").strip()
                self._on_answer(process, result.problem or text or f"status {result.status}")

        fetch = HttpFetch(self._runtime.timer, self._path, *_PROBE_LIMITS, body.append, on_done)
        _start(fetch, process, self._runtime)

    def _on_answer(self, process: NodeProcess, problem: str) -> None:
        self._problems[process.plan.name] = problem[:_PROBLEM_CHARACTERS_MAX]
        self._missing -= 1
        if self._missing:
            return
        found = [f"{name}: {problem}" for name, problem in self._problems.items() if problem]
        if self._path == READY_PATH and self._supervisor.is_stopping:
            found.insert(0, "stopping")
        self._answer(text_response(503, "\n".join(found)) if found else text_response(200, "ok"))


def _start(fetch: HttpFetch, process: NodeProcess, runtime: Runtime) -> None:
    address = parse_address(process.metrics_address)
    assert address is not None, process.metrics_address
    fetch.start(runtime.sockets, *address)
