#!/usr/bin/env python3
"""bench/attack_table.py reads the lines that tests/hostile/test_attacks.py prints."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import attack_table


def printed(what):
    """A line as the attacks print it, with 7 for each figure."""
    source = (ROOT / "tests/hostile/test_attacks.py").read_text()
    pieces = re.search(r'print\((f" +\{self\.what\}: (?:.|\n)*? s")\)', source)[1]
    text = "".join(re.findall(r'f"(.*)"', pieces))
    return re.sub(r"\{[^}]*\}", "7", text.replace("{self.what}", what)) + "\n"


class Table(unittest.TestCase):
    def test_the_line_of_an_attack_is_a_row(self):
        self.assertEqual(attack_table.table(printed("slow readers"))[2:], ["| slow readers | 7 / 7 / 7 | 7 / 7, 7 | 7 / 7 / 7 | 7 | 7 |"])

    def test_of_an_attack_that_was_made_again_the_last_attempt_stands(self):
        first = printed("slow readers").replace("7 MiB before", "3 MiB before")
        self.assertEqual(len(attack_table.table(first + printed("slow readers"))), 3)

    def test_other_lines_are_no_rows(self):
        self.assertEqual(len(attack_table.table("passed 1.0 s  slow readers\n" + "             once more: slow readers\n")), 2)


if __name__ == "__main__":
    unittest.main()
