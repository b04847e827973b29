"""Plans and pictures that pages show before and beside changes: moves, offsets, topic settings."""
