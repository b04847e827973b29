"""The operating system: signals, memory, processes and the service manager."""
