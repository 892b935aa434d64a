#!/usr/bin/env python3
"""What scripts/common.sh shows of a build, with a ninja that only says what ninja says."""

import os
import pathlib
import select
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NINJA = """#!/bin/bash
[[ $NINJA_STATUS == '[%f/%t %e] ' ]] || exit 9
echo "ninja: Entering directory"
printf '%s\\n' "$LINES_OF_NINJA"
exit "$STATUS_OF_NINJA"
"""


def shown(*lines, status=0):
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        (work / "ninja").write_text(NINJA)
        (work / "ninja").chmod(0o755)
        (work / "build/release").mkdir(parents=True)
        (work / "build/release/build.ninja").touch()
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"source {ROOT}/scripts/common.sh; build release tarry"], cwd=work, text=True, capture_output=True,
            env={**os.environ, "PATH": f"{work}:{os.environ['PATH']}", "LINES_OF_NINJA": "\n".join(lines), "STATUS_OF_NINJA": str(status)})
        return done.returncode, done.stdout.splitlines()


class BuildProgress(unittest.TestCase):
    def test_each_tenth_of_the_way_has_the_time_that_the_rest_will_take(self):
        self.assertEqual(shown("[1/40 2.5] cc a.cc", "[4/40 60.0] cc b.cc", "[5/40 61.0] cc c.cc", "[36/40 180.0] cc d.cc", "[40/40 200.1] link"), (0, [
            "         release: 4 of 40, about 9 min left",
            "         release: 36 of 40, about 21 s left",
            "         release: 40 of 40",
        ]))

    def test_what_the_compiler_says_comes_through_and_a_build_that_fails_fails(self):
        code, lines = shown("[1/40 0.5] cc a.cc", "FAILED: a.o", "a.cc:1: error: no", status=1)
        self.assertEqual((code, lines), (1, ["FAILED: a.o", "a.cc:1: error: no"]))

    def test_a_build_of_a_few_steps_says_nothing(self):
        self.assertEqual(shown("[1/2 0.5] cc a.cc", "[2/2 0.6] link"), (0, []))

    def test_a_line_is_shown_while_the_build_goes_on(self):
        words = ["bash", "-c", f"source {ROOT}/scripts/common.sh; progress release"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shower:
            shower.stdin.write("[4/40 60.0] cc a.cc\n")
            shower.stdin.flush()
            # Its input is still open: a filter that gathers lines has shown none.
            readable, _, _ = select.select([shower.stdout], [], [], 20)
            shower.stdin.close()
            self.assertTrue(readable)
            self.assertEqual(shower.stdout.read(), "         release: 4 of 40, about 9 min left\n")


if __name__ == "__main__":
    unittest.main()
