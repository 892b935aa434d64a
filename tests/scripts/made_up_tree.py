"""A repository made up for a test of one of scripts/: what it says of the tree in order, and with
changes put over it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest


class MadeUpTree(unittest.TestCase):
    script = ""
    in_order = {}  # Path -> text.

    def check(self, **changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**self.in_order, **changes}.items():
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / self.script
            ran = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
            return ran.returncode, ran.stdout

    def passes(self, **changes):
        code, said = self.check(**changes)
        self.assertEqual(code, 0, said)

    def refuses(self, said_of_it, **changes):
        code, said = self.check(**changes)
        self.assertEqual(code, 1, said)
        self.assertIn(said_of_it, said)
