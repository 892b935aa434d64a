#!/usr/bin/env python3
"""Fails when a folder includes from a folder that its CMakeLists.txt does not list in USES.

Usage: check_layers.py [ROOT]; without one the repository that this script stands in.  USES is
taken as written, not transitively: what a file includes, its folder names.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).resolve().parents[1])

uses = {}  # Folder -> the folders it may include from.
for cmake in sorted(root.glob("*/CMakeLists.txt")):
    # A folder may have a library and a program: it may use what either lists.
    for call in re.finditer(r"tarry_(?:library|executable)\(\s*(\w+)([^)]*)\)", cmake.read_text()):
        listed = re.search(r"\bUSES\b((?:\s+(?!SOURCES\b|LINKS\b|PRIVATE_LINKS\b)\w+)*)", call[2])
        uses.setdefault(cmake.parent.name, set()).update(listed[1].split() if listed else [])

problems = []
for folder, allowed in uses.items():
    for source in sorted((root / folder).rglob("*.[hc]*")):
        for number, line in enumerate(source.read_text().splitlines(), 1):
            included = re.match(r'\s*#\s*include\s+"(\w+)/([^"]*)"', line)
            if not included or included[1] == folder or included[1] in allowed:
                continue
            if folder == "timing" and included[0].endswith('"base/assert.h"'):
                continue  # Installed with timing, which otherwise stands on nothing of ours.
            problems.append(f"{source.relative_to(root)}:{number}: {folder} may not use {included[1]}")

print("\n".join(problems) or f"{len(uses)} folders keep to their layers")
sys.exit(bool(problems))
