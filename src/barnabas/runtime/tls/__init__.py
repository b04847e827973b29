"""TLS over any stream of `runtime.sockets`: the machine's sockets and the simulated ones."""
