"""The files that somebody works on: kept, compared, put back, merged; and programs run in them."""
