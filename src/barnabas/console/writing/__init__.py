"""Records that the console writes: from a form, or once more from a topic."""
