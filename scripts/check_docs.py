#!/usr/bin/env python3
"""Fails when a document is missing, or a link in one leads nowhere.

Usage: check_docs.py [ROOT]; without one the repository that this script stands in.  Checks that
- every relative link in a Markdown file leads to a file, and its #anchor to a heading;
- every folder of the source, and tests/, has a README.md;
- the README.md of a folder with a library names every header of the folder, without its ending or with it;
- every file in docs/formats/ and docs/adr/ is linked from some other document;
- every "test" in the last column of a table, if that column is called so, begins the name of a case in tests/.
What documents name without a link, scripts/check_references.py looks for.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).resolve().parents[1]).resolve()
skipped = {"build", ".git", "node_modules"}
documents = [
    path for path in sorted(root.rglob("*.md"))
    if not skipped & set(path.relative_to(root).parts)
]
ours = {path.name for path in root.iterdir() if path.is_dir()} - skipped
problems = []
linked = set()


def heading_anchors(text):
    """GitHub's anchors: lower case, spaces to dashes, punctuation gone."""
    for heading in re.findall(r"^#+\s+(.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


for document in documents:
    name = document.relative_to(root)
    text = document.read_text()
    prose = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S)  # Fenced code is an example.
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", prose):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (document.parent / path).resolve() if path else document
        if not found.exists():
            problems.append(f"{name}: link to {target}, which is not there")
            continue
        linked.add(found)
        if anchor and found.suffix == ".md" and anchor not in heading_anchors(found.read_text()):
            problems.append(f"{name}: link to {target}: no such heading")

for cmake in sorted(root.glob("*/CMakeLists.txt")):
    if cmake.parent.name in ours and not (cmake.parent / "README.md").exists():
        problems.append(f"{cmake.parent.name}/ has no README.md")
for cmake in sorted(root.glob("*/CMakeLists.txt")):
    readme = cmake.parent / "README.md"
    if not re.search(r"^tarry_library\(", cmake.read_text(), re.M) or not readme.exists():
        continue
    words = set(re.findall(r"\w+", readme.read_text()))
    for header in sorted(cmake.parent.rglob("*.h")):
        if header.stem not in words:
            problems.append(f"{readme.relative_to(root)} does not name {header.relative_to(root)}")
for folder in ("docs/formats", "docs/adr"):
    for document in sorted((root / folder).glob("*.md")):
        if document.name != "README.md" and document not in linked:
            problems.append(f"{document.relative_to(root)} is linked from nowhere")


def names_of_tests():
    """Of the cases in C++ and of the integration tests, whose literals may stand in several pieces."""
    literals = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
    for source in (root / "tests").rglob("*"):
        if source.suffix in (".cc", ".py"):
            for name in re.findall(rf"\b(?:TEST_CASE|\w*case)\(\s*f?({literals})", source.read_text()):
                yield "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', name))


tests = set(names_of_tests())
for document in documents:
    column = None  # What the last column of the table is called.
    for line in document.read_text().splitlines():
        if not line.startswith("| "):
            column = column if line.startswith("|--") else None
            continue
        last = line.rstrip("| ").split(" | ")[-1]
        if column is None:
            column = last
        elif re.search(r"\btests?\b", column):
            for name in re.findall(r'"([^"]{15,})"', last):
                if not any(test.startswith(name.removesuffix("...")) for test in tests):
                    problems.append(f'{document.relative_to(root)}: there is no test "{name}"')

print("\n".join(problems) or f"{len(documents)} documents: every link has a target")
sys.exit(bool(problems))
