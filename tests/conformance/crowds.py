"""Limits of the machine for brokers to which many clients connect at once."""

# The kernel drops connection attempts beyond the backlog, and the client's kernel repeats them
# after a second. With Kafka's backlog of 50, 10,000 connections take minutes, and the broker never
# has all of them at the same time.
LONG_BACKLOG = {"socket.listen.backlog.size": "4096"}
