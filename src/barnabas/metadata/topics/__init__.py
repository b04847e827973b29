"""Topics in the image, and their changes."""
