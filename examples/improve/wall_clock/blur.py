"""A blur of a picture, slower than it need be."""

WINDOW = 3


def blur(rows: list[list[int]]) -> list[list[int]]:
    """Each value becomes the mean of those around it, rounded down."""
    height, width = len(rows), len(rows[0])
    result = []
    for y in range(height):
        line = []
        for x in range(width):
            total, count = 0, 0
            for b in range(height):
                for a in range(max(0, x - WINDOW), min(width, x + WINDOW + 1)):
                    if abs(b - y) <= WINDOW:
                        total += rows[b][a]
                        count += 1
            line.append(total // count)
        result.append(line)
    return result
