"""The Kafka client: a core with callbacks and without I/O, and the APIs that use it.

It works with Barnabas, with Apache Kafka 2.1 and later, and with compatible brokers. Users import
`barnabas.Client`; the command line and the Spark source use the modules below it.
"""

from __future__ import annotations
