"""What a run is asked to do; the command passes it to the process of the run as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run."""

    # Path of the specification.
    spec: str
    # Spark's master.
    master: str = "local[*]"
    # Settings with which Spark starts; they override ours.
    settings: dict[str, str] = field(default_factory=dict)
    # Only these datasets; all if empty.
    refresh: tuple[str, ...] = ()
    # These tables anew, and no others.
    full_refresh: tuple[str, ...] = ()
    # Check the definitions, and do not run them.
    check_only: bool = False
    # Flows that run although they changed.
    accepted: tuple[str, ...] = ()
    # Run again after this pause, until stopped. None for one run.
    every_s: float | None = None
    # Host and port at which the metrics of the flows are served. None to serve none.
    metrics: tuple[str, int] | None = None

    def to_json(self) -> str:
        """Return the request on one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> RunRequest:
        """Return the request of `to_json`."""
        value = json.loads(line)
        for name in ("refresh", "full_refresh", "accepted"):
            value[name] = tuple(value[name])
        if value["metrics"] is not None:
            value["metrics"] = tuple(value["metrics"])
        return cls(**value)
