"""Writes docs/troubles.md from the table of staged troubles in `tests/scenario/trouble_table.py`.

Run `python -m tools.document_troubles` after a change of the table: a test compares.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "scenario" / "trouble_table.py"
FILE = ROOT / "docs" / "troubles.md"
COMMAND = "python -m tools.document_troubles"

HEAD = f"""# Troubles, and what mends them

Written by `{COMMAND}` from the table that `test_troubles.py` stages on real processes: do not edit.

Begin with `barnabas doctor HOST:PORT[,HOST:PORT...]`. It looks at addresses, brokers, the metadata quorum, clocks, partitions, groups, disks and
configurations, and ends within five seconds, whatever is dead or paused. Each line is `ok`, `note` (it works, and is worth knowing) or `wrong`,
with the remedy below it. A quorum without a leader is the first line: nothing else gets better before that is mended. `barnabas why` explains
a single partition or group. `barnabas doctor DIRECTORY` and `barnabas doctor SERVER.PROPERTIES` look at a node that does not start.

While a broker is down, change no configuration for its sake: its replicas catch up by themselves when it is started again. Do not delete a
node's data, do not lower `min.insync.replicas` or replication factors, and elect no unclean leader to get over a broker that comes back.

## What doctor says

"Test" is what the test does to bring the trouble about, and to mend it; after it doctor has to find nothing wrong.

| trouble | test | doctor says | and advises | mended by |
|---|---|---|---|---|
"""  # noqa: E501 - lines of Markdown

TAIL = """
## Exit statuses and waits

`doctor` and `why` end with 0 when nothing is wrong (notes count as nothing), 1 when something is, 2 on wrong usage. Other commands end with 1 when
the cluster refuses or no broker answers. A command that reaches no broker says so on standard error after one second, with what each address
answered, and ends after ten; `--timeout SECONDS` changes the ten.

| the client says | it means |
|---|---|
| `Connection refused` | the machine is there, and no program listens at the port |
| `the host name has no address` | the name is misspelt, or DNS and /etc/hosts do not know it |
| `it answered with TLS` | the listener wants TLS, and the client is set to PLAINTEXT |
| `a web server (HTTP) listens there` | the port is that of metrics or of a web console |
| `does not speak Kafka's protocol` | another program listens at the port |
| `no response within … ms` | the process is paused or stuck, or a firewall drops packets |
"""  # noqa: E501 - lines of Markdown


def document() -> str:
    """The whole file."""
    rows = []
    table: tuple[Any, ...] = runpy.run_path(str(TABLE))["TROUBLES"]
    for trouble in table:
        cells = (
            trouble.name,
            trouble.staged,
            f"{trouble.verdict}: … {trouble.says} …",
            f"… {trouble.remedy} …",
            trouble.mended or "outside of the cluster",
        )
        rows.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
        sys.stdout.write(f"{FILE}\n")
