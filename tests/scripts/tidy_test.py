#!/usr/bin/env python3
"""What scripts/tidy finds, and what it remembers."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "tidy"

CLEAN = {
    ".clang-tidy": "Checks: '-*,readability-container-size-empty'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '.*'\n",
    "base/CMakeLists.txt": "tarry_library(base SOURCES a.cc b.cc)\n",
    "base/text.h": "#pragma once\n#include <string>\ninline int length(const std::string& s) { return s.empty() ? 0 : 1; }\n",
    "base/a.cc": '#include "base/text.h"\nnamespace { int two() { return 2; } }\nint a() { return two(); }\n',
    "base/b.cc": '#include "base/text.h"\nint b(const std::string& s) { return length(s); }\n',
}
FINDING = "bool empty(const std::string& s) { return s.size() == 0; }\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in CLEAN.items():
            self.write(path, text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_it(self, *more):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.root / "cache")}
        ran = subprocess.run([sys.executable, script, "--root", self.root, *more], env=environment,
                             capture_output=True, text=True)
        if ran.returncode == 77:
            self.skipTest(ran.stdout)
        return ran.returncode, ran.stdout

    def remembered(self):
        return sorted(file.name for file in (self.root / "cache/tarry-tidy").iterdir())

    def test_a_clean_tree_passes_and_is_remembered(self):
        self.assertEqual(self.run_it()[0], 0)
        before = self.remembered()
        self.assertEqual(len(before), 1)
        self.assertEqual(self.run_it()[0], 0)
        self.assertEqual(self.remembered(), before)

    def test_a_finding_is_shown_with_its_file_and_line_again_and_again(self):
        self.write("base/b.cc", CLEAN["base/b.cc"] + FINDING)
        for _ in range(2):
            code, said = self.run_it()
            self.assertEqual(code, 1)
            self.assertIn("base/b.cc:3:", said)
            self.assertIn("readability-container-size-empty", said)

    def test_a_finding_in_a_header_is_shown_once(self):
        self.write("base/text.h", CLEAN["base/text.h"] + "inline " + FINDING)
        self.write("base/low/c.cc", '#include "base/text.h"\n')
        code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertEqual(said.count("base/text.h:4:"), 1, said)

    def test_a_change_of_a_header_or_of_the_checks_is_looked_at(self):
        self.assertEqual(self.run_it()[0], 0)
        self.write("base/text.h", CLEAN["base/text.h"] + "inline " + FINDING)
        self.assertEqual(self.run_it()[0], 1)
        self.write("base/text.h", CLEAN["base/text.h"])
        self.assertEqual(self.run_it()[0], 0)
        self.write(".clang-tidy", CLEAN[".clang-tidy"].replace("container-size-empty", "redundant-control-flow"))
        self.assertEqual(self.run_it()[0], 0)
        self.assertEqual(len(self.remembered()), 2)

    def test_files_whose_names_collide_are_read_one_by_one(self):
        self.write("base/b.cc", CLEAN["base/a.cc"].replace("int a()", "int b()"))
        self.assertEqual(self.run_it()[0], 0)
        self.write("base/b.cc", CLEAN["base/a.cc"].replace("int a()", "int b()") + FINDING)
        code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("base/b.cc:4:", said)

    def test_a_file_that_cannot_be_read_fails(self):
        self.write("base/b.cc", '#include "base/gone.h"\n')
        code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("base/gone.h", said)

    def test_only_the_folders_that_are_named_are_looked_at(self):
        self.write("base/b.cc", CLEAN["base/b.cc"] + FINDING)
        self.write("delay/CMakeLists.txt", "tarry_library(delay SOURCES d.cc)\n")
        self.write("delay/d.cc", "int d() { return 4; }\n")
        self.assertEqual(self.run_it("delay")[0], 0)
        self.assertEqual(self.run_it()[0], 1)


if __name__ == "__main__":
    unittest.main()
