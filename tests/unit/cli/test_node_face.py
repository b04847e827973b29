"""The one HTTP listener of a node of several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.nodes.node_face import TEXTS_MAX, NodeFace
from unit.cli.supervised_node import Node

if TYPE_CHECKING:
    from barnabas.metrics.http_listener import HttpResponse


def test_metrics_are_refused_while_slow_clients_have_not_read_theirs() -> None:
    node = Node()
    face = NodeFace(node.supervisor, node.runtime)

    def scrape() -> HttpResponse:
        answers: list[HttpResponse] = []
        face._respond("GET", "/metrics", answers.append)
        return answers[0]

    unread = [scrape() for _ in range(TEXTS_MAX)]
    assert [each.status for each in unread] == [200] * TEXTS_MAX
    # Also a client that has begun to read still has the rest to come.
    assert next(unread[0].body)
    assert scrape().status == 503
    text = b"".join(unread[0].body)
    assert text.endswith(b'barnabas_node_process_restarts_total{broker="102",roles="broker"} 0.0\n')
    assert scrape().status == 200
    # A client that goes away takes its response with it.
    unread.pop()
    assert scrape().status == 200
