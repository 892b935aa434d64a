#!/usr/bin/env python3
"""Fails when an #include points upwards, when includes run in a circle, or when a source is not built.

Usage: check_layers.py [ROOT]; without one the repository that this script stands in.

Four rules, each read from the CMakeLists.txt of a top folder; docs/ARCHITECTURE.md, if it is there, has to
state the first two as they are:
- USES: a folder includes only from itself and from the folders listed, taken as written and not
  transitively: what a file includes, its folder names.
- ORDER: the sub-folders of a folder from the bottom up, "." for the files beside them.  A file
  includes only from its own sub-folder and those before it.
- No circle: a .cc with its .h counts as one file, and no files include each other in a loop, in
  tests/ and bench/ neither.
- SOURCES: every .cc of the folder stands in the SOURCES of its library or program, and none that
  does not exist; names with a variable of CMake's in them are made by the build.
"""

import os
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).resolve().parents[1])

uses = {}  # Folder -> the folders it may include from.
order = {}  # Folder -> its sub-folders, from the bottom up.
sources = {}  # Folder -> the files that its library and its program are made from.
for cmake in sorted(root.glob("*/CMakeLists.txt")):
    folder = cmake.parent.name
    # A folder may have a library and a program: it may use what either lists.
    for call in re.finditer(r"tarry_(?:library|executable)\(\s*(\w+)([^)]*)\)", cmake.read_text()):
        words = re.split(r"\b(SOURCES|USES|LINKS|PRIVATE_LINKS|ORDER)\b", call[2])
        listed = {name: text.split() for name, text in zip(words[1::2], words[2::2])}
        uses.setdefault(folder, set()).update(listed.get("USES", []))
        sources.setdefault(folder, set()).update(
            f"{folder}/{name}" for name in listed.get("SOURCES", []) if "$" not in name)
        if "ORDER" in listed:
            order[folder] = listed["ORDER"]

if not uses:
    print(f"{root}: no folder here has a CMakeLists.txt with tarry_library() or tarry_executable()")
    sys.exit(1)

problems = []


def place(path):
    """The sub-folder of a file below its top folder; "." for those beside the sub-folders."""
    return path.parts[1] if len(path.parts) > 2 else "."


def check_line(source, number, included):
    """`included` is the path in the #include, `source` that of the file; both below the root."""
    folder, target = source.parts[0], included
    where = f"{source}:{number}"
    if target.parts[0] != folder:
        # assert.h is installed with timing, which otherwise stands on nothing of ours.
        installed = folder == "timing" and str(included) == "base/assert.h"
        if target.parts[0] not in uses[folder] and not installed:
            problems.append(f"{where}: {folder} may not use {target.parts[0]}")
        return
    places = order.get(folder)
    if places is None:
        return
    here, there = place(source), place(target)
    for each in (here, there):
        if each not in places:
            problems.append(f"{where}: {folder}/{each} has no place in the ORDER of {folder}")
            return
    if places.index(there) > places.index(here):
        problems.append(f"{where}: {folder}/{here} may not use {folder}/{there}, which stands above it")


edges = {}  # A file without its ending -> the files that it includes.
INCLUDE = re.compile(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def included_by(path, line):
    """The file of this repository that the line includes, below the root, or None.  In quotes a file beside
    the includer comes first, as for the compiler; in <> stands what is installed, and ours may stand there too."""
    if not (match := INCLUDE.match(line)):
        return None
    name = pathlib.PurePosixPath(match[1] or match[2])
    if match[1] and (root / path.parent / name).is_file():
        return pathlib.PurePosixPath(os.path.normpath(path.parent / name))
    if match[1] and name.parts[0] in uses:
        return name
    return name if (root / name).is_file() else None


for folder in [*uses, "tests", "bench"]:
    for source in sorted((root / folder).rglob("*.[hc]*")):
        if source.suffix not in (".h", ".cc"):
            continue
        path = source.relative_to(root)
        unit = str(path.with_suffix(""))
        edges.setdefault(unit, set())
        for number, line in enumerate(source.read_text().splitlines(), 1):
            included = included_by(path, line)
            if not included or folder in uses and included.parts[0] not in uses:
                continue
            if folder in uses:
                check_line(path, number, included)
            if str(included.with_suffix("")) != unit:
                edges[unit].add(str(included.with_suffix("")))


def circles():
    """Tarjan's strongly connected components of more than one file, without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in sorted(edges):
        if start in index:
            continue
        work = [(start, iter(sorted(edges[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            unit, rest = work[-1]
            for target in rest:
                if target not in edges:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in on_stack:
                    low[unit] = min(low[unit], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == index[unit]:
                    circle = set()
                    while unit not in circle:
                        circle.add(stack.pop())
                    on_stack -= circle
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return found


for circle in circles():
    ties = [f"{a} -> {b}" for a in circle for b in sorted(edges[a]) if b in circle]
    problems.append(f"{len(circle)} files include each other in a circle: {', '.join(ties)}")

for folder, listed in sources.items():
    there = {str(file.relative_to(root)) for file in (root / folder).rglob("*.cc")}
    cmake = f"{folder}/CMakeLists.txt"
    problems += [f"{file}: it stands in no SOURCES of {cmake}" for file in sorted(there - listed)]
    problems += [f"{cmake}: SOURCES has {file}, which is not there" for file in sorted(listed - there)]

page = root / "docs/ARCHITECTURE.md"
if page.exists():
    for row in re.finditer(r"^\| \d \| `(\w+)/` \|.*\| ([^|]*) \|$", page.read_text(), re.M):
        stated = set(re.findall(r"\w+", re.sub(r"`[^`]*`.*|-", "", row[2])))
        if row[1] in uses and stated != uses[row[1]] - {row[1]}:
            problems.append(f"{page.relative_to(root)}: {row[1]}/ may include {' '.join(sorted(stated))}; its USES say "
                            f"{' '.join(sorted(uses[row[1]] - {row[1]}))}")
    stated = " < ".join(order.get("broker", []))
    if stated and f"    {stated}\n" not in page.read_text():
        problems.append(f"{page.relative_to(root)}: the order of broker/ is not: {stated}")

print("\n".join(problems) or f"{len(uses)} folders, {sum(unit.split('/')[0] in uses for unit in edges)} files: each folder includes only folders below it")
sys.exit(bool(problems))
