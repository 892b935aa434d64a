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
  NINJA_STATUS='[%f/%t %e] ' ninja -C "build/$preset" -j "$(nproc)" "$@" 2>&1 | progress "$preset"
}

# progress PRESET: ninja's output, with its steps as tenths of the way.  Each line is shown when it
# comes: Debian's awk would keep 4 KiB of them.
progress() {
  local preset=$1 line shown=0 tenth left rest
  while IFS= read -r line || [[ -n $line ]]; do
    [[ $line == 'ninja: Entering directory'* || $line == 'ninja: no work to do'* ]] && continue
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\ ([0-9]+)(\.([0-9]))?[0-9]*\]\  ]]; then
      local steps=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]} tenths=${BASH_REMATCH[3]}${BASH_REMATCH[5]:-0}
      tenth=$((steps * 10 / of))
      ((tenth > shown && of >= 10)) || continue
      shown=$tenth
      left=$((10#$tenths * (of - steps) / steps / 10))
      rest=", about $(((left + 30) / 60)) min left"
      ((left < 90)) && rest=", about $((left + 1)) s left"
      ((steps == of)) && rest=
      echo "         $preset: $steps of $of$rest"
    else
      printf '%s\n' "$line"
    fi
  done
}

# has_target PRESET TARGET: whether the configured build knows it.
has_target() { ninja -C "build/$1" -t query "$2" >/dev/null 2>&1; }
