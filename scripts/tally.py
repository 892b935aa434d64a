#!/usr/bin/env python3
"""Counts the test cases in the output of `ctest -V`, and shows what the failed tests said.

Usage: tally.py CTEST_LOG.  A doctest binary counts with the cases of its own summary; a binary
that fails without a failed case (it crashed, leaked, hung or never got to its summary) counts as
one failed case more; any other test is one case.  Ends with "N passed, N failed[, N skipped]".
"""

import re
import sys

said = {}  # Test number -> the lines it wrote.
ended = {}  # Test number -> (name, status, seconds).
for line in open(sys.argv[1], errors="replace"):
    line = line.rstrip("\n")
    if output := re.match(r"(\d+): (.*)", line):
        said.setdefault(output[1], []).append(output[2])
    elif end := re.match(r"\s*\d+/\d+ Test\s+#(\d+): (\S+) \.*\s*(\**\w[\w ().]*?)\s+([\d.]+) sec", line):
        ended[end[1]] = (end[2], end[3].strip("* "), end[4])

passed = failed = skipped = 0
if not ended:
    print(f"no test ran; the end of {sys.argv[1]}:")
    print("".join(open(sys.argv[1], errors="replace").readlines()[-20:]))
    failed = 1

for number, (name, status, seconds) in sorted(ended.items(), key=lambda item: int(item[0])):
    lines = said.get(number, [])
    summaries = [m for m in (re.match(
        r"\[doctest\] test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed", line)
        for line in lines) if m]
    ok = sum(int(m[2]) for m in summaries)
    bad = sum(int(m[3]) for m in summaries)
    if status == "Skipped":
        skipped += 1
    elif status == "Passed":
        ok = ok if summaries else 1
    elif bad == 0:
        bad = 1
    passed += ok
    failed += bad
    if bad:
        print(f"FAILED {name} ({status}, {seconds} s), {bad} of {ok + bad}:")
        print("\n".join("  " + line for line in lines[-200:]))
    else:
        print(f"{name}: {status.lower()}" + (f", {ok} cases" if ok else "") + f", {seconds} s")

print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
sys.exit(failed > 0)
