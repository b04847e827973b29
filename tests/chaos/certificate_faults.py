"""Faults of certificates in a cluster with TLS on all listeners: rotation, and an expired one.

A node reads its key store again when its key is set anew (KIP-226), for new connections. Open
connections keep the certificate that they began with.
"""

from __future__ import annotations

import socket
import ssl
import time

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.runtime.web import verifying_context
from barnabas.testing.cluster_process import Address, NodeProcess
from certificates import Certificate
from chaos.cluster_view import ASK_TIMEOUT_S, IS_LATE, await_that
from chaos.faults import Fault, let_pass
from chaos.stress import HEAL_TIMEOUT_S, Stress
from conformance.tls_cluster import TlsFiles

# Lifetime of a short-lived certificate. All nodes load it before it expires.
SHORT_S = 12.0
_BROKER = 4
_SET = 0
_SUBJECT = "CN=broker,OU=brokers"


def rotate(stress: Stress) -> str:
    """Replace the certificates of all nodes, one node after the other."""
    files = _files(stress)
    own = files.authority.issue(_SUBJECT)
    files.write_store(files.key_store.name, own)
    for node in stress.cluster.brokers:
        serve(stress, node, own)
    return "all nodes"


def expire(stress: Stress) -> str:
    """Let the certificate of a leader expire: open connections continue, new ones fail."""
    files = _files(stress)
    node = stress.leader()
    short = files.authority.issue(_SUBJECT, days=SHORT_S / 86_400)
    end = time.monotonic() + SHORT_S
    files.write_store(files.key_store.name, short)
    serve(stress, node, short)
    # Rotate before `heal` waits for anything that needs new connections.
    stress.undo.append(lambda: rotate(stress))
    let_pass(stress, max(0.0, end + 1 - time.monotonic()))
    for address in node.options.listeners.values():
        refused = refusal(files, address)
        assert "expired" in refused, f"node {node.node_id} at {address}: {refused!r}"
    return f"node {node.node_id}"


CERTIFICATE_FAULTS = (
    Fault("certificates rotated", rotate, needs_tls=True, weight=4),
    Fault("certificate expired", expire, needs_tls=True, weight=4),
)


def serve(stress: Stress, node: NodeProcess, own: Certificate) -> None:
    """Reload the key stores of all listeners of a node, and wait for the new certificate."""
    files = _files(stress)
    for name in node.options.listeners:
        key = f"listener.name.{name.lower()}.ssl.keystore.location"
        config = AlterableConfig(name=key, config_operation=_SET, value=str(files.key_store))
        resource = AlterConfigsResource(
            resource_type=_BROKER, resource_name=str(node.node_id), configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        def order(request: IncrementalAlterConfigsRequest = request) -> tuple[int, str | None]:
            answer = stress.view.ask(node.node_id, request, 1, HEAL_TIMEOUT_S)
            (told,) = answer.responses  # type: ignore[attr-defined]
            return told.error_code, told.error_message

        code, text = await_that(order, lambda told: told[0] not in IS_LATE, HEAL_TIMEOUT_S, key)
        assert code == ErrorCode.NONE, (key, code, text)
    for address in node.options.listeners.values():
        await_that(
            lambda address=address: served(files, address),
            lambda der: der == own.der,
            HEAL_TIMEOUT_S,
            f"the new certificate of node {node.node_id} at {address}",
        )


def served(files: TlsFiles, address: Address) -> bytes:
    """Return the certificate of a listener, without verification.

    Raises:
        OSError: the listener cannot be reached.
    """
    context = _context(files)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _shake(context, address)


def refusal(files: TlsFiles, address: Address) -> str:
    """Return why a client refuses the certificate of a listener; empty if it accepts it."""
    try:
        _shake(_context(files), address)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    return ""


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = verifying_context(str(files.ca))
    context.load_cert_chain(files.client_certificate, files.client_key)
    return context


def _shake(context: ssl.SSLContext, address: Address) -> bytes:
    with (
        socket.create_connection(address, ASK_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as end,
    ):
        return end.getpeercert(binary_form=True) or b""


def _files(stress: Stress) -> TlsFiles:
    assert stress.tls is not None, "the listeners have no TLS"
    return stress.tls
