#!/usr/bin/env python3
"""Makes the source file that holds the page: embed_page.py OUTPUT FILE...

Each file is there twice, as it is and compressed, with its content type and a hash of its content.
The same files give the same output.
"""
import gzip
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/vnd.microsoft.icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}


def literal(content: bytes) -> str:
    """A C++ literal, in lines of a readable length.  An escape has three digits, so what follows
    it never becomes a part of it."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
    lines = []
    for start in range(0, len(content), 64):
        text = "".join(
            plain.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
            for byte in content[start : start + 64]
        )
        lines.append(f'    "{text}"')
    return "\n".join(lines) or '    ""'


def main() -> int:
    output, *files = map(pathlib.Path, sys.argv[1:])
    rows = []
    for file in sorted(files, key=lambda each: each.name):
        if file.suffix not in TYPES:
            print(f"{file}: no content type is known for {file.suffix}; add it to {__file__}")
            return 1
        content = file.read_bytes()
        packed = gzip.compress(content, compresslevel=9, mtime=0)
        rows.append(
            f'  {{"{file.name}", "{TYPES[file.suffix]}",'
            f' "{hashlib.sha256(content).hexdigest()[:32]}",\n'
            f"   {{\n{literal(content)}, {len(content)}}},\n   {{\n{literal(packed)}, {len(packed)}}}}},\n"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        '#include "admin/page_files.h"\n\nnamespace tarry::admin {\n\n'
        f"namespace {{\nconstexpr PageFile files[] = {{\n{''.join(rows)}}};\n}}  // namespace\n\n"
        "const std::span<const PageFile> page_files{files};\n\n}  // namespace tarry::admin\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
