"""What agents remember: topics, and the index by which everything recorded is found again."""
