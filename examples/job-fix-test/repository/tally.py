"""Adds up the lines of a bill, such as `3 x 250`, to a total in cents."""


def total(lines: list[str]) -> int:
    return sum(amount(line) for line in lines)


def amount(line: str) -> int:
    count, price = line.split("x")
    return int(count) + int(price)
