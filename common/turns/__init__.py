"""A turn in the database: one statement begins it, in the usual case with what it finds, and one ends it."""
