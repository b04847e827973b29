"""From committed records to images, and from images to snapshots."""
