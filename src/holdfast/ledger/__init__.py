"""What really happened: one line for each event of an agent, chained over days.

Works on an empty home and knows nothing of agents' other files.
"""
