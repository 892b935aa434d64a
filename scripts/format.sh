#!/usr/bin/env bash
# Formats every C++ file with Debian 12's clang-format; --check only says which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-format >/dev/null; then
  echo "clang-format is not installed: apt-get install clang-format"
  exit 77  # ctest takes it as skipped.
fi
case ${1:-} in
  '') mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *) echo "usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
find . \( -path ./build -o -path ./.git -o -name node_modules \) -prune -o \
  \( -name '*.h' -o -name '*.cc' \) -print0 |
  xargs -0 -r -n 8 -P "$(nproc)" clang-format "${mode[@]}"
