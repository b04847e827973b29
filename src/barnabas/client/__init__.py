"""The Kafka client: a callback core without I/O of its own, and a blocking face over it.

It speaks to Barnabas, to Apache Kafka from 2.1 on and to every broker compatible with them. Users
import `barnabas.Client`; the parts below it are what the command line and the Spark source use.
"""

from __future__ import annotations
