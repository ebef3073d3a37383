"""What customers may see, correct and delete of what is remembered of them."""
