"""A site's own data: importing it, and the metrics computed from it."""
