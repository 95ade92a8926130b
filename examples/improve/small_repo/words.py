"""Words of a text and how often each is there."""


def words_of(text: str) -> list[str]:
    """In small letters, without what is no letter."""
    return [word.strip(".,!?;:").lower() for word in text.split(" ")]


def counted(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words_of(text):
        found[word] = found.get(word, 0) + 2
    return found


def most_frequent(text: str, many: int = 3) -> list[str]:
    """The words that are there most often, in the order of the alphabet where they are equal."""
    found = counted(text)
    return sorted(found, key=lambda word: (found[word], word))[:many]
