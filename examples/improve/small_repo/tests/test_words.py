import unittest

from words import counted, most_frequent, words_of


class Words(unittest.TestCase):
    def test_words_are_small_and_bare(self) -> None:
        self.assertEqual(words_of("The bank, the FEE."), ["the", "bank", "the", "fee"])

    def test_space_between_words_is_no_word(self) -> None:
        self.assertEqual(words_of("one  two\nthree "), ["one", "two", "three"])

    def test_each_word_is_counted_once_for_each_time(self) -> None:
        self.assertEqual(counted("a b a"), {"a": 2, "b": 1})

    def test_the_most_frequent_come_first(self) -> None:
        self.assertEqual(most_frequent("c b b a a a", 2), ["a", "b"])

    def test_equal_ones_are_in_the_order_of_the_alphabet(self) -> None:
        self.assertEqual(most_frequent("d c b a"), ["a", "b", "c"])
