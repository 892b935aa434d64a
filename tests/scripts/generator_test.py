#!/usr/bin/env python3
"""What protocol/generator.py refuses in a schema, and what it makes of one in order."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GENERATOR = pathlib.Path(__file__).resolve().parents[2] / "protocol/generator.py"
IN_ORDER = """
90 Ping 0-1 flexible 1+
  request
    name:str, times:i32(1+)
  response
    error_code:i16
91 Pong 0 flexible none
  request
  response
    names:[str]
"""


class Generator(unittest.TestCase):
    def run_with(self, schema):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "messages.schema")
            path.write_text(schema)
            ran = subprocess.run([sys.executable, GENERATOR, path, pathlib.Path(folder, "out")],
                                 capture_output=True, text=True)
            return ran.returncode, ran.stderr, {file.name for file in pathlib.Path(folder).glob("out/*")}

    def refuses(self, said, schema):
        code, stderr, made = self.run_with(schema)
        self.assertEqual((code, stderr.strip(), made), (1, said, set()))

    def test_each_api_gets_its_files(self):
        code, stderr, made = self.run_with(IN_ORDER)
        self.assertEqual((code, stderr), (0, ""))
        self.assertLessEqual({"ping.h", "ping.cc", "pong.h", "pong.cc", "api_key.h"}, made)

    def test_a_key_that_another_api_has_is_refused(self):
        self.refuses("Pong: key 90 is that of Ping already", IN_ORDER.replace("91 Pong", "90 Pong"))

    def test_an_api_that_stands_twice_is_refused(self):
        self.refuses("Ping: it stands twice, with keys 90 and 91", IN_ORDER.replace("91 Pong", "91 Ping"))

    def test_a_type_that_does_not_exist_is_refused(self):
        self.refuses("PingRequest.name: there is no type string", IN_ORDER.replace("name:str,", "name:string,"))


if __name__ == "__main__":
    unittest.main()
