"""The work of `barnabas start --brokers`: run a node of several processes under a supervisor.

This process serves no Kafka client and opens no log. It derives the configurations of its processes
(`server/configs/node_layout`), starts them, and is their one face: it prints the addresses, writes
the log of all, serves the metrics and the probes of all, and reports to the service manager.
"""

from __future__ import annotations

import gc
import logging
import os
from typing import TYPE_CHECKING

from barnabas.cli.nodes.node_plans import reserved_node
from barnabas.cli.nodes.node_process import StartOfProcess
from barnabas.cli.nodes.node_processes import NodeProcesses
from barnabas.cli.nodes.node_supervisor import NodeFailedToStartError, NodeSupervisor
from barnabas.cli.nodes.process_output import NodeLog
from barnabas.cli.nodes.registry_child import registry_child
from barnabas.cli.nodes.start_options import FORMAT_KEY, first_topics, registry_options
from barnabas.cli.nodes.start_report import StartError, fail_start, print_ready, with_remedy
from barnabas.runtime.life_signs import LifeSigns, can_receive_life_signs
from barnabas.runtime.loop import run
from barnabas.runtime.service_manager import service_manager
from barnabas.server.configs.node_keys import STOP_TIMEOUT_KEY, SUPERVISOR_KEYS
from barnabas.settings.definition import ConfigDefinition
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.nodes.node_face import NodeFace
    from barnabas.cli.nodes.registry_child import RegistryChild
    from barnabas.cli.nodes.start_files import StartFiles
    from barnabas.cli.nodes.start_options import StartOptions
    from barnabas.runtime.loop import ProcessControl, Runtime
    from barnabas.runtime.service_manager import ServiceManager
    from barnabas.server.configs.node_layout import NodeProcessPlan

_log = logging.getLogger(__name__)

# Threads of this process. It only looks up host names in them.
_WORKERS = 1


def run_node(properties: dict[str, str], options: StartOptions, start_files: StartFiles) -> int:
    """Run the node until a signal stops it. Return the exit status.

    Args:
        properties: the keys of the operator, with those of the command line.
        options: the options of the command line.
        start_files: the ready file and the temporary directory.

    Raises:
        ConfigError: an invalid configuration.
        StartError: invalid options.
        OSError: a directory or an address cannot be used.
    """
    # `main` has disabled collections for the imports. Imported objects live forever.
    gc.freeze()
    gc.enable()
    first_topics(options)
    node = _Node(properties, options, start_files)
    try:
        with reserved_node(properties) as plans:
            return node.run(plans)
    except StorageError as error:
        return fail_start(str(error))


class _Node:
    """The parts of this process, while the node runs."""

    def __init__(
        self, properties: dict[str, str], options: StartOptions, start_files: StartFiles
    ) -> None:
        self._options = options
        self._start_files = start_files
        self._registry_options = registry_options(properties)
        self._properties = properties
        self._starter = NodeProcesses()
        self._supervisor: NodeSupervisor | None = None
        self._manager: ServiceManager | None = None
        self._registry: RegistryChild | None = None
        self._face: NodeFace | None = None
        self._signs: LifeSigns | None = None

    def run(self, plans: Sequence[NodeProcessPlan]) -> int:
        """Run the processes. Return the exit status."""
        try:
            run(lambda runtime, control: self._main(plans, runtime, control), _WORKERS)
        except (NodeFailedToStartError, StartError) as error:
            return fail_start(str(error), self._manager)
        except OSError as error:
            return fail_start(with_remedy(error), self._manager)
        finally:
            if self._registry is not None:
                self._registry.kill()
            # Nothing is left after a clean stop. Otherwise the node has failed, or a second signal
            # has arrived.
            if self._supervisor is not None:
                self._supervisor.kill()
            self._starter.close()
            if self._signs is not None:
                self._signs.close()
        return 0

    def _main(
        self, plans: Sequence[NodeProcessPlan], runtime: Runtime, control: ProcessControl
    ) -> None:
        manager = self._manager = service_manager(runtime.timer, os.environ)
        start = StartOfProcess(
            self._starter,
            runtime.clock,
            runtime.timer,
            control,
            NodeLog(self._properties.get(FORMAT_KEY, "text")),
        )
        config = ConfigDefinition(SUPERVISOR_KEYS).parse(self._properties)
        supervisor = self._supervisor = NodeSupervisor(
            [(plan, self._words(plan)) for plan in plans],
            start,
            config.integer(STOP_TIMEOUT_KEY),
            lambda addresses: self._on_ready(addresses, control),
            control.fail,
        )
        environment = dict(os.environ)
        limit_ms = manager.watchdog_limit_ms
        if limit_ms is not None and can_receive_life_signs():
            # Half of the limit is left for a supervisor that is late itself.
            signs = self._signs = LifeSigns(limit_ms / 2, supervisor.on_life_sign)
            control.on_input(signs.fileno(), signs.read)
            environment |= signs.environment
            manager.watch(lambda: supervisor.why_hung(limit_ms / 2) is None)
        start.environment = environment
        manager.starting(f"starting {len(plans)} processes")
        self._listen(runtime, supervisor)
        if self._registry_options is not None:
            self._registry = registry_child(self._registry_options, runtime, control)
        control.on_stop(lambda: self._stop(control))
        self._start_files.watch(runtime, control)
        supervisor.start()

    def _words(self, plan: NodeProcessPlan) -> list[str]:
        """Return the options of a process besides its properties."""
        words = []
        if plan.number == 1:
            words += [f"--topic={topic}" for topic in self._options.topics]
        if self._start_files.temporary_directory is not None:
            words.append(f"--remove-orphaned={plan.properties['log.dirs']}")
        return words

    def _listen(self, runtime: Runtime, supervisor: NodeSupervisor) -> None:
        address = self._properties.get("metrics.listener")
        if not address:
            return
        # Imported only with a metrics listener.
        from barnabas.cli.nodes.node_face import NodeFace

        self._face = NodeFace(supervisor, runtime)
        self._face.listen(address)

    def _on_ready(self, addresses: str, control: ProcessControl) -> None:
        try:
            self._start_files.on_ready(addresses)
        except OSError as error:
            control.fail(error)
            return
        print_ready(addresses, None if self._face is None else self._face.address)
        assert self._manager is not None
        self._manager.ready(f"ready at {addresses}")
        if self._registry is not None:
            self._registry.start(addresses)

    def _stop(self, control: ProcessControl) -> None:
        assert self._manager is not None
        assert self._supervisor is not None
        supervisor = self._supervisor
        self._manager.stopping("stopping: the brokers first, then the controller")
        if self._registry is None:
            supervisor.stop(control.finish)
        else:
            self._registry.stop(lambda: supervisor.stop(control.finish))
