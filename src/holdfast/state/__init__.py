"""State that is decided on: one log, one fold, the documents that show it."""
