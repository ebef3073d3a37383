"""The gate on the quality of wrap-ups."""
