"""Online bin packing: each item goes into the bin with the highest priority."""

from bisect import bisect_left

EDGES = (0, 1, 2, 3, 5, 7, 9, 12, 15, 19, 24, 30, 40, 55, 75)
# By the room that is left in the bin, up to each edge.  As it stands, this is best fit.
WEIGHTS = [  # search: 0..1
    1.0,
    0.9375,
    0.875,
    0.8125,
    0.75,
    0.6875,
    0.625,
    0.5625,
    0.5,
    0.4375,
    0.375,
    0.3125,
    0.25,
    0.1875,
    0.125,
    0.0625,
]


def priority(left: int) -> float:
    """Of a bin that has so much room left once the item is in it; an empty bin is one of them."""
    return WEIGHTS[bisect_left(EDGES, left)] - 1e-4 * left
