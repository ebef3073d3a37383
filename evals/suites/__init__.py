"""One folder a gate: its cases and the task that grades them."""
