"""The knowledge base: ingesting it, searching it, citing it, and knowing whether it helps."""
