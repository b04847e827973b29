"""An Iceberg catalog that speaks the REST protocol, as far as the sink uses it.

It keeps its tables in a catalog of SQLite, so that tests also read them there.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StagedTable, Table

from barnabas.spark.iceberg.catalog import open_catalog
from spark.iceberg_tables import named

CONFLICTS = (CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError)


class RestCatalog:
    """The server, at a free port."""

    def __init__(self, directory: Path) -> None:
        catalog = open_catalog(named(directory))
        handler: type[_Handler] = type("Handler", (_Handler,), {"catalog": catalog})
        # So many commits are done, and answered by an error of a gateway.
        self.lost: list[int] = []
        handler.lost = self.lost
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _LostError(Exception):
    """The response of a commit is lost; the argument is the status instead."""


def _status(error: Exception) -> int:
    match error:
        case _LostError():
            return int(error.args[0])
        case NoSuchTableError():
            return 404
    return 409


class _Handler(BaseHTTPRequestHandler):
    catalog: Catalog
    lost: list[int]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({})

    def do_HEAD(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            status, body = 200, self._result(request)
        except (*CONFLICTS, NoSuchTableError, _LostError) as error:
            status = _status(error)
            kind = type(error).__name__
            body = {"error": {"message": str(error), "type": kind, "code": status}}
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _result(self, request: dict[str, Any]) -> dict[str, Any]:
        words = self.path.partition("?")[0].strip("/").split("/")[1:]
        match (self.command, words):
            case ("GET", ["config"]):
                return {"defaults": {}, "overrides": {}}
            case ("POST", ["namespaces"]):
                self.catalog.create_namespace(tuple(request["namespace"]))
                return {"namespace": request["namespace"], "properties": {}}
            case (_, ["namespaces", _name]):
                return {"namespace": [_name], "properties": {}}
            case ("POST", ["namespaces", namespace, "tables"]):
                return self._create(namespace, request)
            case ("GET", ["namespaces", namespace, "tables", name]):
                return _loaded(self.catalog.load_table((namespace, name)))
            case ("POST", ["namespaces", namespace, "tables", name]):
                done = self._commit((namespace, name), request)
                if self.lost:
                    raise _LostError(self.lost.pop())
                return done
        raise AssertionError(self.path)

    def _create(self, namespace: str, request: dict[str, Any]) -> dict[str, Any]:
        spec = request.get("partition-spec")
        staged = self.catalog._create_staged_table(  # type: ignore[attr-defined] - of SqlCatalog
            (namespace, request["name"]),
            Schema.model_validate(request["schema"]),
            partition_spec=PartitionSpec.model_validate(spec)
            if spec
            else UNPARTITIONED_PARTITION_SPEC,
            properties=request.get("properties", {}),
        )
        return _loaded(staged)

    def _commit(self, name: tuple[str, str], request: dict[str, Any]) -> dict[str, Any]:
        parsed = CommitTableRequest.model_validate(
            {"identifier": {"namespace": [name[0]], "name": name[1]}} | request
        )
        try:
            table: Table = self.catalog.load_table(name)
        except NoSuchTableError:
            table = StagedTable(name, None, None, None, self.catalog)  # type: ignore[arg-type] - name only
        done = self.catalog.commit_table(table, parsed.requirements, parsed.updates)
        return {
            "metadata": json.loads(done.metadata.model_dump_json()),
            "metadata-location": done.metadata_location,
        }


def _loaded(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata": metadata, "metadata-location": table.metadata_location, "config": {}}
