"""A task in the form of OpenEvolve: the least value of a function, found by search."""


# EVOLVE-BLOCK-START
def search():
    x, y = 0.0, 0.0  # search: -5..5
    return x, y


# EVOLVE-BLOCK-END


def run_search():
    return search()
