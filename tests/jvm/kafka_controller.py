"""An Apache Kafka that is only a controller; its listener also serves simulated brokers."""

from __future__ import annotations

from jvm.kafka_process import KafkaProcess


class KafkaController(KafkaProcess):
    """An Apache Kafka controller, whose `bootstrap` is the controller listener."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the controller listener."""
        return f"{self.host}:{self.port}"

    def settings(self) -> dict[str, str]:
        """Return all keys of server.properties."""
        self.port = self._controller_port
        settings = {
            **super().settings(),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{self.bootstrap}",
            **self._settings,
        }
        del settings["advertised.listeners"]
        return settings
