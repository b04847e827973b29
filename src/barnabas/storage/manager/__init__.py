"""All logs of a broker, and the tasks that run over them."""
