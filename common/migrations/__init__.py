"""The schema's history: expand first, contract in a later release."""
