"""Secrets of a broker and its clients appear in no output, log, argument or file of records."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.group import group
from certificates import shared_authority
from conformance.secured_broker import SecuredBroker, cli
from waiting import eventually

PLAIN_SECRET = "plain-geheim-1"
STORE_SECRET = "store-geheim-2"
CLIENT_SECRET = "client-geheim-3"
DYNAMIC_SECRET = "dynamic-geheim-4"
PROVIDED_SECRET = "provided-geheim-5"
SCRAM_SECRET = "scram-geheim-6"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


class Outputs:
    """The output of commands, and the secrets that must not be in it."""

    def __init__(self) -> None:
        self.text = ""
        self.secrets = [PLAIN_SECRET, STORE_SECRET, CLIENT_SECRET, DYNAMIC_SECRET]
        self.secrets += [PROVIDED_SECRET, SCRAM_SECRET]

    def run(self, *words: str, stdin: str | None = None, fails: bool | None = False) -> str:
        """Run a command that succeeds, fails, or (None) does either; return its output."""
        assert not any(secret in word for word in words for secret in self.secrets), words
        done = CliRunner().invoke(group, words, input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        self.text += done.output
        assert fails is None or (done.exit_code != 0) == fails, done.output
        return done.output

    def start(self, path: str, data: Path) -> None:
        """Start a broker in a separate process, which must fail."""
        done = cli("start", path, "--data-dir", str(data))
        assert done.returncode == 1, done.stderr
        self.text += done.stdout + done.stderr

    def check(self, text: str, where: str) -> None:
        """Check that a text has no secret."""
        assert text, where
        for secret in self.secrets:
            place = text.find(secret)
            assert place < 0, f"{where}: {text[max(0, place - 200) : place + 50]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secrets")
    secured = SecuredBroker(folder)
    assert secured.init_result.returncode == 0, secured.init_result.stderr
    (folder / "store.p12").write_bytes(shared_authority().issue().pkcs12(STORE_SECRET))
    (folder / "passwords").write_text(f"store={STORE_SECRET}\nclient={PROVIDED_SECRET}\n")
    properties = secured.files / "server.properties"
    text = properties.read_text().replace(
        "sasl.enabled.mechanisms=", "sasl.enabled.mechanisms=PLAIN,"
    )
    more = {
        "config.providers": "file",
        "config.providers.file.class": PROVIDER,
        "config.providers.file.param.allowed.paths": str(folder),
        "listener.name.ssl.ssl.keystore.location": f"{folder}/store.p12",
        "listener.name.ssl.ssl.keystore.type": "PKCS12",
        "listener.name.ssl.ssl.keystore.password": f"${{file:{folder}/passwords:store}}",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required user_paul="{PLAIN_SECRET}";'
        ),
        # The most verbose level.
        "barnabas.log.level": "debug",
    }
    properties.write_text(text + "".join(f"{key}={value}\n" for key, value in more.items()))
    with secured:
        yield secured


def with_line(broker: SecuredBroker, tmp_path: Path, *lines: str) -> str:
    """Write a copy of server.properties with more lines; return its path."""
    path = tmp_path / "broken.properties"
    text = (broker.files / "server.properties").read_text()
    path.write_text(text + "".join(f"{line}\n" for line in lines))
    return str(path)


def client_file(broker: SecuredBroker, tmp_path: Path, name: str, **changed: str) -> str:
    """Write a client's properties with other keys; return the path."""
    keys = {key.replace("_", "."): value for key, value in changed.items()}
    path = tmp_path / name
    path.write_text("".join(f"{k}={v}\n" for k, v in {**broker.keys("barnabas"), **keys}.items()))
    return str(path)


def test_log_ins_and_descriptions_show_no_secret(broker: SecuredBroker, tmp_path: Path) -> None:
    outputs = Outputs()
    outputs.secrets.append(broker.password)
    admin = ("-F", broker.file("barnabas"))

    # Log in with wrong credentials, and send a secret without a login.
    outputs.run("users", "add", "sam", "--password-file", "-", *admin, stdin=f"{SCRAM_SECRET}\n")
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"):
        wrong = client_file(
            broker, tmp_path, mechanism, sasl_mechanism=mechanism, sasl_password=CLIENT_SECRET
        )
        outputs.run("topics", "list", "-F", wrong, fails=True)
        outputs.run("doctor", broker.with_password, "-F", wrong, fails=None)
    host, _, port = broker.with_password.rpartition(":")
    context = ssl._create_unverified_context()
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as tls:
        tls.sendall(b"\0\0\0\x20" + CLIENT_SECRET.encode() * 3)
        tls.recv(10)
    eventually(lambda: "authentication" in broker.log().lower())

    # Describe and change configurations.
    outputs.run("configs", "describe", "broker", "1", "--all", "--sources", "--json", *admin)
    dynamic = "listener.name.ssl.ssl.keystore.password"
    outputs.run("configs", "set", "broker", "1", "--file", "-", *admin, fails=True,
                stdin=f"{dynamic}={DYNAMIC_SECRET}\n")  # fmt: skip
    outputs.run("configs", "describe", "broker", "1", "--all", *admin)

    outputs.check(outputs.text, "the output of the commands")
    outputs.check(broker.log(), "the log of the broker")
    arguments = Path(f"/proc/{broker.pid}/cmdline").read_text()
    outputs.check(arguments, "the arguments of the broker")
    for path in sorted((broker.files / "data").rglob("*")):
        if path.is_file():
            outputs.check("-" + path.read_bytes().decode("latin-1"), str(path))


def test_files_that_cannot_be_used_show_no_secret(broker: SecuredBroker, tmp_path: Path) -> None:
    outputs = Outputs()
    outputs.run("doctor", str(broker.files / "server.properties"), fails=None)
    provided = f"${{file:{broker.directory}/passwords:client}}"
    for line in (
        f"ssl.client.auth={provided}",
        f"num.partitions={provided}",
        f"listener.name.ssl.ssl.keystore.password={PLAIN_SECRET}",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN_SECRET} {CLIENT_SECRET}",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN_MODULE} required a={CLIENT_SECRET}",
        f"ssl.keystore.password={PLAIN_SECRET}\nssl.keystore.type=PKCS12",
        f"sasl.jaas.config={CLIENT_SECRET}",
    ):
        path = with_line(broker, tmp_path, line)
        outputs.run("doctor", path, fails=None)
    for line in (
        f"ssl.client.auth={provided}",
        f"listener.name.ssl.ssl.keystore.password={PLAIN_SECRET}",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN_SECRET} {CLIENT_SECRET}",
    ):
        outputs.start(with_line(broker, tmp_path, line), tmp_path / "data")
    for key in ("linger.ms", "security.protocol", "sasl.jaas.config", "acks"):
        keys = {
            "config.providers": "file",
            "config.providers.file.class": PROVIDER,
            key: provided,
        }
        path = client_file(broker, tmp_path, "provided", **keys)
        outputs.run("produce", "absent", "-F", path, stdin="x\n", fails=True)
    outputs.check(outputs.text, "the output of the commands")
