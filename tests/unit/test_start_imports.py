"""A broker starts in a fraction of a second: what its start must not import."""

from __future__ import annotations

import subprocess
import sys

START = "barnabas.cli.main, barnabas.cli.start_broker, barnabas.server.broker, uvloop"

# Modules that cost milliseconds and that nothing needs before the first request, if ever. A class
# made by `dataclasses` is compiled at each start: `msgspec.Struct` is there for values.
UNWANTED = {"aiokafka", "click", "dataclasses", "h11", "prometheus_client", "pyarrow", "rich"}


def test_the_start_of_a_broker_imports_no_module_that_it_can_do_without() -> None:
    program = f"import sys, {START}; print(*sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    imported = set(listed.stdout.split())
    assert "barnabas.replication.replica_manager" in imported
    assert not imported & UNWANTED
