"""An Apache Kafka that is a controller alone: its one listener serves brokers, made up ones too."""

from __future__ import annotations

from jvm.kafka_process import KafkaProcess


class KafkaController(KafkaProcess):
    """`bootstrap` is the controller listener."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the controller listener."""
        return f"{self.host}:{self.port}"

    def settings(self) -> dict[str, str]:
        """All of server.properties."""
        self.port = self._controller_port
        settings = {
            **super().settings(),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{self.bootstrap}",
            **self._settings,
        }
        del settings["advertised.listeners"]
        return settings
