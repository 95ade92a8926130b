"""Money: reserved before it is spent, settled afterwards."""
