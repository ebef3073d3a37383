"""Long-term and short-term memory: snapshots, wrap-ups, documents and entries of a user."""
