"""A private PostgreSQL server with logical decoding, and its SQL by `psql`.

The server runs in a temporary directory, on a free port of the loopback address. PostgreSQL refuses
to run as root, so root runs it as `postgres`, the user of the Debian package.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Self

from barnabas.testing.free_ports import HOST, free_ports
from processes import ExampleError, Process, identity, wait_until

USER = DATABASE = "cdc"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # What Debezium needs: changes of rows in the write-ahead log.
    "wal_level": "logical",
    "timezone": "UTC",
}
_DONE = "-- done --"


def find_binaries() -> Path:
    """Return the directory of the newest PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if not found:
        raise ExampleError("there is no PostgreSQL: install it (Debian: apt install postgresql)")
    return found[-1].parent


class Postgres:
    """The server; a context manager that removes its directory."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._binaries = find_binaries()
        self._user = "postgres" if os.geteuid() == 0 else None
        self._directory = Path(tempfile.mkdtemp(prefix="barnabas-cdc-"))
        (self.port,) = free_ports(1)
        self.password = secrets.token_urlsafe(16)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        return self

    def _start(self) -> None:
        password_file = self._directory / "password"
        password_file.write_text(self.password)
        data = self._directory / "data"
        if self._user is not None:
            for path in (self._directory, password_file):
                shutil.chown(path, self._user, self._user)
        initdb = [str(self._binaries / "initdb"), "-D", str(data), "-U", USER, "-E", "UTF8"]
        initdb += ["--auth=scram-sha-256", f"--pwfile={password_file}", "--locale=C"]
        done = subprocess.run(
            initdb,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._directory,
            **identity(self._user),
        )
        if done.returncode:
            raise ExampleError(f"initdb failed:\n{done.stderr}")
        command = [str(self._binaries / "postgres"), "-D", str(data), "-p", str(self.port)]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        self._process = Process("postgres", command, self._logs, self._user)
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        wait_until(
            lambda: subprocess.run(probe, check=False).returncode == 0,
            "PostgreSQL accepts connections",
            30,
            self._process,
        )
        self.run(f"CREATE DATABASE {DATABASE}", database="postgres")

    def __exit__(self, *_: object) -> None:
        # The fast shutdown: it ends the sessions of clients.
        self._process.stop(signal.SIGINT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def command(self, database: str = DATABASE) -> list[str]:
        """Return the words that start `psql`."""
        words = [str(self._binaries / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return [*words, "-h", HOST, "-p", str(self.port), "-U", USER, "-d", database]

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables for `psql`: the password is not in its command line."""
        return {**os.environ, "PGPASSWORD": self.password, "PGTZ": "UTC"}

    def run(self, sql: str, stdin: str | None = None, database: str = DATABASE) -> str:
        """Run SQL in a session of its own; return what psql prints.

        Args:
            sql: one statement, or a command of psql.
            stdin: the rows of `\\copy ... FROM STDIN`.
            database: the database of the session.
        """
        done = subprocess.run(
            [*self.command(database), "-c", sql],
            input=stdin,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExampleError(f"psql failed: {done.stderr}\n{sql}")
        return done.stdout


class SqlSession:
    """One connection: a `psql` that runs until `close`."""

    def __init__(self, server: Postgres) -> None:
        self._process = subprocess.Popen(
            server.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=server.environment,
        )

    def run(self, sql: str) -> list[str]:
        """Run statements that end in semicolons; return the printed lines.

        Raises:
            ExampleError: a statement failed; the session is over.
        """
        _write(self._process.stdin, f"{sql}\n\\echo {_DONE}\n")
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == _DONE:
                return lines
            lines.append(line.rstrip("\n"))
        raise ExampleError("psql ended:\n" + "\n".join([*lines, sql[:1000]]))

    def close(self) -> None:
        """End the connection."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _write(pipe: IO[str] | None, text: str) -> None:
    assert pipe is not None
    pipe.write(text)
    pipe.flush()
