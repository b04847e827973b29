"""Writes docs/configuration.md from the definitions of the config keys.

Run `python -m tools.document_configs` after a change of any key; a test checks the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.client.accepted_keys import IGNORED, UNSUPPORTED
from barnabas.client.config import CHOICES, RANGES, ClientConfig
from barnabas.controller.config import CONTROLLER_CONFIGS
from barnabas.coordinator.group.group_config import DEFINITION as COORDINATOR_KEYS
from barnabas.coordinator.share.config import DEFINITION as SHARE_KEYS
from barnabas.coordinator.transaction.config import DEFINITION as TRANSACTION_KEYS
from barnabas.metadata.client_metrics_configs import CLIENT_METRICS_CONFIGS
from barnabas.metadata.group_configs import GROUP_CONFIGS
from barnabas.raft.config import RAFT_CONFIGS
from barnabas.replication.config import DEFINITION as REPLICATION_KEYS
from barnabas.server.configs.config import LISTENER_KEYS, NODE_KEYS, PROTECTION_KEYS, SERVER_KEYS
from barnabas.server.configs.configuration import BROKER_KEYS
from barnabas.server.configs.sasl_keys import SASL_KEYS
from barnabas.server.configs.tls_config import TLS_KEYS
from barnabas.server.quotas.config import CONNECTION_KEYS, QUOTA_KEYS
from barnabas.settings.definition import ConfigDefinition, ConfigKey, markdown_table
from barnabas.storage.config import BROKER_CONFIGS, TOPIC_CONFIGS
from barnabas.storage.remote_keys import REMOTE_KEYS

FILE = Path(__file__).parents[1] / "docs" / "configuration.md"
COMMAND = "python -m tools.document_configs"

HEAD = f"""# Configuration

Written by `{COMMAND}` from the definitions that the broker itself reads: do not edit.
Names, defaults and meanings are those of Apache Kafka 4.4.

- **Broker keys** stand in a properties file (`barnabas start server.properties`) or behind
  `--set KEY=VALUE`. Those whose column *change* says *per-broker* or *cluster-wide* can be changed
  while the broker runs: `barnabas configs set broker 1 KEY=VALUE`, or `broker default` for all
  brokers. *read-only* keys take a restart.
- **Topic keys** are given to `barnabas topics create --config KEY=VALUE` and changed by
  `barnabas configs set topic NAME KEY=VALUE`. Where a topic says nothing the broker key holds.
- `barnabas configs describe` shows the current values and their sources;
  `barnabas doctor server.properties` finds keys that mean nothing.
"""


_SASL = (
    "How clients log in. A key of one listener has the prefix `listener.name.NAME.`; "
    "`sasl.jaas.config` has the mechanism too: `listener.name.NAME.plain.sasl.jaas.config`."
)


def areas() -> list[tuple[str, str, list[ConfigKey]]]:
    """Return title, sentence and keys of each area; every broker key occurs exactly once."""
    requests = [
        key
        for key in SERVER_KEYS
        if key not in NODE_KEYS
        and key not in LISTENER_KEYS
        and key not in PROTECTION_KEYS
        and key.name not in QUOTA_KEYS
        and key.name not in CONNECTION_KEYS
        and key.name not in TLS_KEYS
    ]
    found = [
        ("The node", "Its identity and its data directories.", list(NODE_KEYS)),
        ("Listeners", "Where it listens and what clients are told.", list(LISTENER_KEYS)),
        (
            "Protection",
            "Which listeners are protected: [security.md](security.md).",
            list(PROTECTION_KEYS),
        ),
        (
            "TLS",
            "Each key can be set for one listener: `listener.name.NAME.KEY`.",
            list(TLS_KEYS),
        ),
        ("SASL", _SASL, list(SASL_KEYS)),
        ("Connections", "How many there may be, and how fast they come.", list(CONNECTION_KEYS)),
        ("Requests", "What requests may ask for.", requests),
        (
            "Quotas",
            "How use is measured. `AlterClientQuotas` sets the limits of users and clients.",
            list(QUOTA_KEYS),
        ),
        (
            "Logs",
            "Segments, retention, flushing, compaction: defaults of topics too.",
            [key for key in BROKER_CONFIGS if key not in REMOTE_KEYS],
        ),
        (
            "Tiered storage",
            "Older segments in a store: [tiered-storage.md](tiered-storage.md).",
            list(REMOTE_KEYS),
        ),
        ("Replication", "Copies on several brokers.", list(REPLICATION_KEYS)),
        ("Metadata quorum", "The log of metadata and its voters.", list(RAFT_CONFIGS)),
        ("Controller", "Work of the active controller.", list(CONTROLLER_CONFIGS)),
        ("Groups", "Consumer groups and their offsets.", list(COORDINATOR_KEYS)),
        ("Share coordinator", "The state of share groups' partitions.", list(SHARE_KEYS)),
        ("Transactions", "Transactional ids and their state.", list(TRANSACTION_KEYS)),
    ]
    listed = [key.name for _, _, keys in found for key in keys]
    assert sorted(listed) == sorted(key.name for key in BROKER_KEYS), "an area is missing here"
    return found


def document() -> str:
    """Return the page."""
    parts = [HEAD, "\n## Broker keys\n"]
    for title, sentence, keys in areas():
        parts.append(f"\n### {title}\n\n{sentence}\n\n{markdown_table(ConfigDefinition(keys))}")
    parts.append(f"\n## Topic keys\n\n{_with_synonyms(TOPIC_CONFIGS)}")
    words = (
        "`barnabas configs set group NAME KEY=VALUE`. They concern members of the consumer "
        "protocol (KIP-848)."
    )
    parts.append(f"\n## Group keys\n\n{words}\n\n{markdown_table(GROUP_CONFIGS)}")
    words = "Of a subscription: `barnabas configs set client-metrics NAME KEY=VALUE`."
    table = markdown_table(CLIENT_METRICS_CONFIGS)
    parts.append(f"\n## Client metrics keys\n\n{words}\n\n{table}")
    parts.append(_client_keys())
    return "".join(parts)


def _with_synonyms(definition: ConfigDefinition) -> str:
    """Return the table of topic keys, each with the broker keys of its default."""
    head = "| key | type | default | allowed | broker key | meaning |\n|---|---|---|---|---|---|\n"
    lines = []
    for key, line in zip(definition, markdown_table(definition).splitlines()[2:], strict=True):
        cells = line.strip("| ").split(" | ")
        cells[-2] = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
        lines.append("| " + " | ".join(cells) + " |\n")
    return head + "".join(lines)


def _client_keys() -> str:
    """Return the keys of the Barnabas client, which each command accepts as `-X KEY=VALUE`."""
    defaults = ClientConfig.parse({"bootstrap.servers": "HOST:9092"})
    rows = []
    for name in ClientConfig.__dataclass_fields__:
        value = getattr(defaults, name)
        default = str(value).lower() if isinstance(value, bool) else str(value)
        if name == "bootstrap_servers":
            default = "required"
        allowed = ", ".join(CHOICES.get(name, ()))
        if name in RANGES:
            low, high = RANGES[name]
            allowed = f"{low} to {high}"
        rows.append(f"| `{name.replace('_', '.')}` | {default} | {allowed} |\n")
    ignored, refused = (
        ", ".join(f"`{name.replace('_', '.')}`" for name in sorted(names))
        for names in (IGNORED, UNSUPPORTED)
    )
    return (
        "\n## Client keys\n\nOf `barnabas.Client`, with `_` for `.`, and of every command as "
        "`-X KEY=VALUE`.\n\n"
        "| key | default | allowed |\n|---|---|---|\n"
        + "".join(rows)
        + f"\nTaken without effect, so that a Java client's properties work: {ignored}.\n"
        + f"\nRefused with a reason, because their effect would be missed: {refused}.\n"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
        sys.stdout.write(f"{FILE}\n")
