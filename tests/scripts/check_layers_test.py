#!/usr/bin/env python3
"""What scripts/check_layers.py finds, and that it finds nothing in a tree in order."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"

IN_ORDER = {
    "base/CMakeLists.txt": "tarry_library(base SOURCES ids.cc)",
    "base/ids.h": "",
    "base/ids.cc": '#include "base/ids.h"\n',
    "broker/CMakeLists.txt": "tarry_library(broker\n  ORDER low . high\n  SOURCES broker.cc\n  USES base)",
    "broker/low/a.h": '#include "base/ids.h"\n',
    "broker/broker.h": '#include "broker/low/a.h"\n',
    "broker/broker.cc": '#include "broker/broker.h"\n',
    "broker/high/b.h": '#include "broker/broker.h"\n#include "broker/low/a.h"\n',
}


class CheckLayers(unittest.TestCase):
    def check(self, **changes):
        """Runs the script on the tree in order with `changes` (path with _ for /) put over it."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**IN_ORDER, **changes}.items():
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            ran = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
            return ran.returncode, ran.stdout

    def test_a_tree_in_order_passes(self):
        code, said = self.check()
        self.assertEqual(code, 0, said)

    def test_a_folder_that_uses_does_not_list_is_named_with_file_and_line(self):
        code, said = self.check(**{"base/ids.h": '\n#include "broker/broker.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("base/ids.h:2: base may not use broker", said)

    def test_an_include_of_a_sub_folder_that_stands_above_fails(self):
        code, said = self.check(**{"broker/low/a.h": '#include "broker/high/c.h"\n', "broker/high/c.h": ""})
        self.assertEqual(code, 1)
        self.assertIn("broker/low/a.h:1: broker/low may not use broker/high", said)

    def test_a_sub_folder_without_a_place_in_the_order_fails(self):
        code, said = self.check(**{"broker/new/d.h": '#include "broker/low/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("broker/new has no place", said)

    def test_a_circle_in_one_folder_fails_and_its_ties_are_named(self):
        code, said = self.check(**{"broker/low/a.h": '#include "broker/low/e.h"\n',
                                   "broker/low/e.h": '#include "broker/low/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("broker/low/a -> broker/low/e, broker/low/e -> broker/low/a", said)

    def test_a_circle_through_a_source_file_is_one_too(self):
        code, said = self.check(**{"broker/low/a.cc": '#include "broker/low/e.h"\n',
                                   "broker/low/e.h": '#include "broker/low/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("2 files include each other in a circle", said)


if __name__ == "__main__":
    unittest.main()
