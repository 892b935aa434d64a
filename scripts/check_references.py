#!/usr/bin/env python3
"""Fails when a document or a comment names what is not in the repository.

Usage: check_references.py [ROOT]; without one the repository that this script stands in.  Checks of
the `code` in Markdown files, and of the comments of all that is written in a language, that
- every path that begins with one of our folders exists (`storage/journal` may be journal.h or
  journal.cc; one with a placeholder such as NAME, * or {a,b} is left alone), and every file that
  is named alone (`journal_test.cc`) stands somewhere;
- every name `Partition::append`, every call `append()`, every type of two words, such as `TimingWheel`,
  and every member `pending_` stands in the code, its strings left out;
- every option `--shards` and every setting `tarry.max.groups` stands in the code;
- nothing points to a page that is not here: a section, a trap or an issue by its number; the
  names of test cases do not either.
Names of others (Kafka's classes) are in THEIRS; their headers stand in <>.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).resolve().parents[1]).resolve()
skipped = {"build", ".git", "node_modules", "__pycache__"}

# At home elsewhere, or made up by an example.
THEIRS = set("""
    AddPartitionsToTxn ConsumerProtocolAssignment ConsumerProtocolSubscription DelayedCreatePartitions
    DelayedCreateTopics DelayedDeleteTopics DumpLogSegments HashedWheelTimer UnsupportedVersionException
    GitHub JavaScript LZ4F_resetDecompressionContext MemoryMax PascalCase ThreadSanitizer
    give_up send_again --now --sparse --stop-timeout --read-only --rm --entrypoint
""".split())
GENERATED = "protocol/messages/"
# Those two show what is wrong.
EXAMPLES = ("scripts/check_references.py", "tests/scripts/check_references_test.py")

C_LIKE, HASH_LIKE = {".h", ".cc", ".js", ".mjs"}, {".py", ".sh", ".cmake", ".schema", ".properties", ".supp", ".service", ".in", ".yml"}
CODE_FILE = re.compile(r"[\w-]+\.(?:h|cc|py|sh|schema|md|html|supp|cmake)")
PLACEHOLDER = re.compile(r"(?:\b|_)[A-Z]{2,}(?:\b|_)(?!\.md)")
PATH = re.compile(r"\.?[\w.-]+(?:/[\w.-]+)+/?")
REFUSED = re.compile(r"\b(?:DESIGN|LAYOUT|INTERFACE|GUIDE)\b|\b[Tt]rap \d+|"
                     r"(?<!RFC \d{4} )\bsection \d+|(?<!librdkafka )\bissue #?\d+")


def kind_of(path):
    """What its comments look like."""
    if path.suffix == ".md":
        return "markdown"
    if path.suffix in C_LIKE:
        return "c"
    if path.suffix == ".py":
        return "python"
    if path.suffix in HASH_LIKE or path.name in ("CMakeLists.txt", "Containerfile", ".clang-tidy", ".clang-format"):
        return "hash"
    if not path.suffix and path.read_bytes()[:2] == b"#!":
        return "python" if b"python" in path.read_bytes().split(b"\n", 1)[0] else "hash"
    return None


# A string, so that what looks like a comment in it is none; or a comment.
TOKENS = {
    "c": re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(//[^\n]*|/\*.*?\*/)', re.S),
    "python": re.compile(r'((?:^|(?<=\n))[ ]*"""(?s:.*?)""")|[rbf]*"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|'
                         r'\'(?:\\.|[^\'\\\n])*\'|(\#[^\n]*)'),
    "hash": re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|((?:^|(?<=[\s]))\#[^\n]*)'),
}


TEST_NAME = re.compile(r'\bTEST_CASE\w*\((?:\s*\w+,)?((?:\s*"(?:\\.|[^"\\\n])*")+)')


def parts_of(path, kind):
    """Comments as (line number, text), the code without them, and that without its strings."""
    text = path.read_text()
    if kind == "markdown":
        prose = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
        return [(prose.count("\n", 0, m.start()) + 1, m[1]) for m in re.finditer(r"`([^`\n]+)`", prose)], "", ""
    comments, code, bare, end = [], [], [], 0
    for token in TOKENS[kind].finditer(text):
        comment = next((g for g in token.groups()[::-1] if g and (kind != "c" or g.startswith("/"))), None)
        code.append(text[end:token.start()])
        bare.append(text[end:token.start()])
        if comment is None:
            code.append(token[0])
        else:
            comments.append((text.count("\n", 0, token.start()) + 1, comment))
        end = token.end()
    code.append(text[end:])
    bare.append(text[end:])
    return comments, " ".join(code), " ".join(bare)


files, comments, code, bare_code, test_names = [], [], [], [], []
for path in sorted(root.rglob("*")):
    if not path.is_file() or skipped & set(path.relative_to(root).parts):
        continue
    files.append(path)
    if kind := kind_of(path):
        said, rest, bare = parts_of(path, kind)
        comments += [(path, number + i, line) for number, text in said for i, line in enumerate(text.split("\n"))]
        code.append(rest)
        bare_code.append(bare)
        for name in TEST_NAME.finditer(rest) if path.suffix == ".cc" else ():
            test_names.append((path, re.sub(r'"\s*"', "", name[1]).strip()))
ours = {path.name for path in root.iterdir() if path.is_dir()} - skipped
names = {path.name for path in files} | {path.stem for path in files}
all_code = "\n".join(code)
words = set(re.findall(r"[A-Za-z_]\w*", all_code)) | THEIRS
# Names that stand only in a string are no functions and no members: a text may be about one that has gone.
functions = set(re.findall(r"[A-Za-z_]\w*", "\n".join(bare_code))) | THEIRS
options = set(re.findall(r"--[a-z][a-z0-9-]+", all_code)) | THEIRS
settings = set(re.findall(r"tarry(?:\.[a-z]+)+", all_code))


def exists(path):
    """A file or folder, also without its .h, .cc or .md, or by its number alone (docs/adr/0001)."""
    return path.exists() or any([*path.parent.glob(path.name + end)] for end in (".h", ".cc", ".md", "-*.md"))


def missing(where, line):
    """What this line of a comment names and is not there."""
    line = re.sub(r"<[\w./]+>|\b\w+://\S+", " ", line)
    for word in re.findall(r"[\w./*{},:()<>=-]+", line):
        word = word.strip("().,:;").removesuffix("'s")
        if PATH.fullmatch(word):
            if word.split("/")[0] not in ours or word.startswith(GENERATED) or PLACEHOLDER.search(word):
                continue
            if not exists(root / word) and not exists(where.parent / word):
                yield word
        elif CODE_FILE.fullmatch(word) and word not in names and word not in THEIRS:
            yield word
    for call in re.findall(r"[A-Za-z_][\w:]*\(\)|(?:\b\w+::)+\w+", line):
        if not all(part in functions or PLACEHOLDER.search(part) for part in call.removesuffix("()").split("::")):
            yield call
    if not re.search(r"[;{]$", line):  # A line of code that shows how a class is used names what its user has.
        yield from (m for m in re.findall(r"(?<![\w.`-])(?!tarry_)[a-z]\w*_(?![\w*(<{-])", line) if m not in functions)
    for name in re.findall(r"(?<![\w.])(?:[A-Z][a-z0-9]+){2,}\b(?!\.\w)", line):
        if name not in words and name.removesuffix("s") not in words:
            yield name
    if not re.search(r"-->|<--", line):  # An arrow of a picture.
        yield from (o for o in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", line) if o not in options)
    yield from (s for s in re.findall(r"\btarry(?:\.[a-z]+)+", line) if s not in settings)


problems = []
for path, number, line in comments:
    where = f"{path.relative_to(root)}:{number}"
    problems += [f"{where}: names {word}, which is not there" for word in missing(path, line)]
    problems += [f"{where}: points to a page that is not here: {m[0]}" for m in REFUSED.finditer(line)]
for path, name in test_names:
    problems += [f"{path.relative_to(root)}: {name} points to a page that is not here: {m[0]}" for m in REFUSED.finditer(name)]

print("\n".join(problems) or f"{len(files)} files: every name in documents and comments exists")
sys.exit(bool(problems))
