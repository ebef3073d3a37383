"""A turn in the database: two statements, one that begins it and one that ends it."""
