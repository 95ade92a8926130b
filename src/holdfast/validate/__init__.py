"""Files as found on disk: the values in their bytes (`scan`), and their kind (`detect`)."""
