"""Writes docs/troubles.md from the table of troubles in `tests/scenario/trouble_table.py`.

Run `python -m tools.document_troubles` after a change of the table; a test checks the page.
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

HEAD = f"""# Problems and remedies

`{COMMAND}` writes this page from a table. `test_troubles.py` produces each problem on real processes. Do not edit this page.

Begin with `barnabas doctor HOST:PORT[,HOST:PORT...]`. It examines addresses, brokers, the metadata quorum, clocks, partitions, groups, disks and
configurations. It ends within ten seconds (`--timeout` changes this), even if brokers are dead or paused. Each line is `ok`, `note` (no problem, but useful to know) or `wrong`,
with the remedy below it. A quorum without a leader is the first line, because it must be repaired first. `barnabas why` explains
a single partition or group. `barnabas doctor DIRECTORY` and `barnabas doctor SERVER.PROPERTIES` examine a node that does not start.

[runbook.md](runbook.md) rehearses twelve bad days from the first sign to the end.

While a broker is down, do not change the configuration: its replicas catch up automatically after its next start. Do not delete a
node's data, and do not lower `min.insync.replicas` or replication factors. Do not elect an unclean leader if the broker will return.

## Findings of doctor

The column "test" describes how the test produces the problem. After the remedy, doctor must find nothing wrong.

| problem | test | finding | remedy | remedy in the test |
|---|---|---|---|---|
"""  # noqa: E501 - lines of Markdown

TAIL = """
## Exit statuses and waits

`doctor` and `why` end with 0 if there is no problem (notes are not problems), with 1 if there is a problem, and with 2 on wrong usage. They end with 3 if they
found no problem but could not examine everything: lines with `not examined` say what is missing. `doctor` asks a second time before it advises a change of
a configuration. Other commands end with 1 if the cluster refuses or no broker answers. A command that reaches no broker reports the result of each address on standard error after one second. It
ends after ten seconds; `--timeout SECONDS` changes this limit. For `why`, `partitions show` and `log-dirs`, it limits all requests together.

| message of the client | meaning |
|---|---|
| `Connection refused` | the machine runs, but no program listens at the port |
| `the host name has no address` | the name is misspelled, or DNS and /etc/hosts do not contain it |
| `it answered with TLS` | the listener requires TLS, and the client does not use it |
| `its listener may be one without TLS` | the client uses TLS, and the listener is PLAINTEXT |
| `the certificate of the peer is not valid` | the client does not trust the authority, the certificate has expired, or it is for another host name |
| `requires a certificate` | the listener wants a certificate of the client: `ssl.client.auth=required` |
| `a web server (HTTP) listens there` | the port belongs to metrics or a web console |
| `does not speak Kafka's protocol` | another program listens at the port |
| `no response within … ms` | the process is paused or stuck, or a firewall drops packets |
| `the broker has refused user` | the user does not exist, or the password is wrong |
| `is not enabled on the broker` | the listener does not offer the client's `sasl.mechanism`; the message names those that it offers |
| `the listener does not ask for SASL` | the client logs in, and the listener has no logins |
| `…_AUTHORIZATION_FAILED` | the user lacks a right: `barnabas acls why` explains the decision |
| `is not a share group`, `is not a consumer group` | a group of another type has this name (`barnabas groups list`): use another `group.id` |
| `share.version must be 1 or higher` | share groups are disabled: `barnabas features upgrade share.version=1` |
"""  # noqa: E501 - lines of Markdown


def document() -> str:
    """Return the page."""
    rows = []
    table: tuple[Any, ...] = runpy.run_path(str(TABLE))["TROUBLES"]
    for trouble in table:
        cells = (
            trouble.name,
            trouble.cause,
            f"{trouble.verdict}: … {trouble.finding} …",
            f"… {trouble.remedy} …",
            trouble.resolution or "outside of the cluster",
        )
        rows.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
        sys.stdout.write(f"{FILE}\n")
