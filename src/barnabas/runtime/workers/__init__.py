"""Work outside the event loop: threads and child processes."""
