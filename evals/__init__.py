"""Release gates: labelled cases and the graders that score them."""
