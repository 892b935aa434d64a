# Functions and settings that the commands of this folder share; sourced, never run.

started=${started:-$SECONDS}

# ccache reads what a source includes off the compiler's own list, and does not run the preprocessor
# for each file that is new to it.
export CCACHE_DEPEND=1

# say TEXT: one line with the time since the command began.
say() {
  local elapsed=$((SECONDS - started))
  printf '[%2dm%02ds] %s\n' $((elapsed / 60)) $((elapsed % 60)) "$*"
}

# configure PRESET: silent unless it fails.  A build from nothing compiles sources in groups, which
# takes half the time; those with sanitizers are made by clang where it is there, which takes half of
# g++'s time for the tests themselves.  A build directory that is there keeps what it has.
configure() {
  local chosen=()
  if [[ ! -e build/$1/CMakeCache.txt ]]; then
    chosen=(-DTARRY_JOIN=ON)
    if [[ $1 == asan || $1 == tsan ]] && command -v clang++-22 >/dev/null &&
      compgen -G "/usr/lib/llvm-22/lib/clang/*/lib/linux/libclang_rt.$1-$(uname -m).a" >/dev/null; then
      chosen+=(-DCMAKE_CXX_COMPILER=clang++-22)
    fi
  fi
  mkdir -p build
  cmake --preset "$1" "${chosen[@]}" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log" >&2; return 1; }
}

# build PRESET TARGET...: configures when needed, builds with all cores and shows every tenth of
# the way and about how long the rest takes; what the compiler says comes through.
build() {
  local preset=$1
  shift
  [[ -e build/$preset/build.ninja ]] || configure "$preset" || return 1
  NINJA_STATUS='[%f/%t %e] ' ninja -C "build/$preset" -j "$(nproc)" "$@" 2>&1 | awk -v preset="$preset" '
    /^ninja: Entering directory/ || /^ninja: no work to do/ { next }
    /^\[[0-9]+\/[0-9]+ [0-9.]+\] / {
      split(substr($1, 2), n, "/")
      tenth = int(n[1] * 10 / n[2])
      if (tenth > shown && n[2] >= 10) {
        shown = tenth
        left = $2 * (n[2] - n[1]) / n[1]
        rest = n[1] == n[2] ? "" : left < 90 ? sprintf(", about %d s left", left + 1) : sprintf(", about %d min left", left / 60 + 0.5)
        print "         " preset ": " n[1] " of " n[2] rest
        fflush()
      }
      next
    }
    { print; fflush() }'
}

# has_target PRESET TARGET: whether the configured build knows it.
has_target() { ninja -C "build/$1" -t query "$2" >/dev/null 2>&1; }
