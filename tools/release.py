"""Build the wheel and the source archive of a release, and test their installation.

Each archive is installed into new environments, one for each supported Python on the machine. There
a broker is started, and a message is produced and consumed.
The dependencies come from the package index. Run it with `make release`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Top-level names of a source archive, without PKG-INFO and .gitignore, which hatchling adds.
SOURCE_TOP = {"src", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "pyproject.toml"}
ADDED = {"PKG-INFO", ".gitignore"}
# Some files in the packages that users need.
NEEDED = (
    "barnabas/py.typed",
    "barnabas/__main__.py",
    "barnabas/protocol/messages/produce.py",
    "barnabas/spark/java_home/bin/java",
    "barnabas/spark/python_home/bin/python3",
    "barnabas/testing/plugin.py",
    "pyspark_barnabas/__init__.py",
    "pyspark_barnabas_delta/__init__.py",
    "pyspark_barnabas_iceberg/__init__.py",
)
PACKAGES = (
    "barnabas/",
    "pyspark_barnabas/",
    "pyspark_barnabas_delta/",
    "pyspark_barnabas_iceberg/",
)
MESSAGE = "a message for the release"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
# Timeout for commands that hang.
TIMEOUT_S = 300


class ReleaseError(Exception):
    """An archive cannot be released; the message has the reason."""


def main() -> None:
    """Build the archives, and check their contents and their installation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="for the archives")
    parser.add_argument("--python", action="append", help="a version to try, e.g. 3.12")
    options = parser.parse_args()
    try:
        wheel, source = build(options.directory)
        check_wheel(wheel)
        check_source(source)
        pythons = find_pythons(options.python or PYTHONS)
        for version, python in pythons.items():
            for archive in (wheel, source):
                began = time.monotonic()
                try_archive(python, archive)
                took = time.monotonic() - began
                print(f"ok  Python {version}  {archive.name}  {took:.0f} s", flush=True)
    except (ReleaseError, subprocess.SubprocessError) as error:
        sys.exit(f"release: {error}")
    print(f"ready to upload: {wheel} {source}")


def build(directory: Path) -> tuple[Path, Path]:
    """Build both archives into an empty directory; return the wheel and the source archive."""
    shutil.rmtree(directory, ignore_errors=True)
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(directory.resolve())]
    run(words, ROOT)
    [wheel], [source] = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel.resolve(), source.resolve()


def check_wheel(wheel: Path) -> None:
    """Raise ReleaseError unless the wheel has exactly the packages and their license."""
    names = zipfile.ZipFile(wheel).namelist()
    code = {name for name in names if ".dist-info/" not in name}
    refuse(wheel, "does not need", {name for name in code if not name.startswith(PACKAGES)})
    refuse(wheel, "does not need", {name for name in code if is_left_over(name)})
    refuse(wheel, "lacks", set(NEEDED) - code)
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    refuse(wheel, "lacks", {"LICENSE", "NOTICE"} - licences)


def check_source(source: Path) -> None:
    """Raise ReleaseError unless the archive has exactly the sources of a wheel."""
    with tarfile.open(source) as archive:
        names = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    top = {name.partition("/")[0] for name in names}
    refuse(source, "does not need", top - SOURCE_TOP - ADDED)
    refuse(source, "does not need", {name for name in names if is_left_over(name)})
    refuse(source, "lacks", (SOURCE_TOP - top) | ({f"src/{each}" for each in NEEDED} - names))


def is_left_over(name: str) -> bool:
    """Return whether a file was created by a run of the code or by an editor."""
    return re.search(r"__pycache__|\.py[co]$|\.orig$|~$|/\.", f"/{name}") is not None and (
        name not in ADDED
    )


def refuse(archive: Path, verb: str, names: set[str]) -> None:
    """Raise ReleaseError if there are any names."""
    if names:
        raise ReleaseError(f"{archive.name} {verb} {', '.join(sorted(names)[:5])}")


def find_pythons(versions: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Return the interpreters of these versions that the machine has.

    Raises:
        ReleaseError: the machine has none of them.
    """
    found = {}
    for version in versions:
        name = f"python{version}"
        kept = sorted(str(each) for each in PYENV.glob(f"versions/{version}.*/bin/{name}"))
        commands = [command for command in (shutil.which(name), *kept) if command]
        # pyenv also has commands on the path for versions that are not selected, which fail.
        working = [command for command in commands if is_python(command, version)]
        if working:
            found[version] = working[0]
        else:
            print(f"--  Python {version}  not on this machine", flush=True)
    if not found:
        raise ReleaseError(f"no Python of {', '.join(versions)} on this machine")
    return found


def is_python(command: str, version: str) -> bool:
    """Return whether a command is an interpreter of this version, such as 3.12."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([command, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def try_archive(python: str, archive: Path) -> None:
    """Install an archive into a new environment, and send a message through a broker there.

    Raises:
        ReleaseError: a step failed.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-release-") as name:
        directory = Path(name)
        run([python, "-m", "venv", "venv"], directory)
        binaries = directory / "venv" / "bin"
        run([str(binaries / "pip"), "install", "-q", str(archive)], directory)
        version = project_version()
        for words in ([str(binaries / "barnabas")], [str(binaries / "python"), "-m", "barnabas"]):
            printed = run([*words, "--version"], directory).strip()
            if printed != f"barnabas {version}":
                raise ReleaseError(f"{archive.name}: --version prints {printed!r}")
        send_a_message(binaries / "barnabas", directory)


def send_a_message(barnabas: Path, directory: Path) -> None:
    """Start a broker, produce a message and consume it.

    Raises:
        ReleaseError: the broker did not start, or the message was not consumed.
    """
    words = [str(barnabas), "start", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    with subprocess.Popen(words, cwd=directory, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready, _, address = broker.stdout.readline().strip().partition(" ")
            if ready != "ready":
                raise ReleaseError(f"{' '.join(words)} did not start")
            broker_options = ["-b", address]
            run([str(barnabas), "produce", "greetings", *broker_options], directory, f"{MESSAGE}\n")
            consume = [
                "consume",
                "greetings",
                "--from",
                "beginning",
                "--exit-at-end",
                *broker_options,
            ]
            printed = run([str(barnabas), *consume], directory)
        finally:
            broker.terminate()
    if printed != f"{MESSAGE}\n":
        raise ReleaseError(f"the consumer printed {printed!r}")
    if broker.returncode != 0:
        raise ReleaseError(f"the broker ended with exit status {broker.returncode}")


def project_version() -> str:
    """Return the version in the project's settings."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    text = (ROOT / settings["path"]).read_text()
    [version] = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def run(words: list[str], directory: Path, stdin: str | None = None) -> str:
    """Run a command to its end and return its output.

    Raises:
        ReleaseError: the command failed; the message has its output.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words,
        cwd=directory,
        env=kept,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(words)} failed\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
