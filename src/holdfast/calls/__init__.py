"""A model call as it is recorded: intent and result, money, sealed texts."""
