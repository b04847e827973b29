"""One heartbeat of a consumer group, and the checks of its fields and of its member."""
