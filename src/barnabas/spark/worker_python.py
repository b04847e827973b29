"""Makes the Python processes that Spark starts cheap: their start, and the end of each task.

Spark starts a Python process for each streaming query, and several ones in each session. Their
start takes most of the processor time of a small query.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def prepare_local_workers(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let workers of local sessions import the installed pyspark, instead of an archive of it.

    Python keeps no compiled form of the modules of archives. With compiled modules, a process
    imports pyspark in a third of the time. A Python that the user chose for the workers is kept.
    """
    launcher = str(resources.files("barnabas.spark").joinpath("python_home", "bin", "python3"))
    if os.name != "posix" or not _is_spark_of_pyspark(environment):
        return
    environment["BARNABAS_WORKER_PYTHON"] = sys.executable
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if environment.get(name, sys.executable) == sys.executable:
            environment[name] = launcher


def _is_spark_of_pyspark(environment: MutableMapping[str, str]) -> bool:
    """Whether Spark is the one inside the installed package, so that both have one version."""
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    return Path(environment.get("SPARK_HOME", installed)).resolve() == installed


def freeze_imports() -> None:
    """Exempt loaded modules from garbage collection, in a task of Spark.

    After each task, Spark's worker collects the garbage of its whole heap. Loaded modules are
    nearly all of it, and visiting them takes ten times as long as reading a few records.
    """
    _freeze(len(sys.modules))


@lru_cache(maxsize=1)
def _freeze(_modules: int) -> None:
    # Modules that the first task imports lazily are frozen by the second task.
    gc.freeze()
