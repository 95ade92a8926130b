"""The test that fails: `python3 -m unittest -q check_tally`."""

import unittest

from tally import total


class Total(unittest.TestCase):
    def test_each_line_is_its_price_as_often_as_it_says(self) -> None:
        self.assertEqual(total(["3 x 250", "1 x 99"]), 849)

    def test_no_lines_cost_nothing(self) -> None:
        self.assertEqual(total([]), 0)


if __name__ == "__main__":
    unittest.main()
