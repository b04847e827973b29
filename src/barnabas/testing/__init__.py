"""What tests over Barnabas need, ours and users': a broker process, and pytest fixtures for it."""
