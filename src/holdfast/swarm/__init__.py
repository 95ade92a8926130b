"""Several agents at one goal, tick by tick, in a run that survives its process."""
