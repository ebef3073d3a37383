"""A turn: from the raw query to the stored answer."""
