"""A chat turn: where a query goes, what the model is shown, and how the answer is made and kept."""
