#!/bin/sh
# muster.hpp compiles without a warning in every standard from C++17 on, and refuses what it must.
# cpp_compilers.sh <compiler> <folder of the tests> <folder of the headers>...
# Ends with 77 (ctest: skipped) where there is no such compiler.
set -eu
compiler=$1
tests=$2
shift 2
command -v "$compiler" >/dev/null || { echo "left out: there is no $compiler"; exit 77; }
folders="-I $tests"
for folder in "$@"; do folders="$folders -I $folder"; done
strict="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Wold-style-cast -Werror -fsyntax-only"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Where the newest standard has no name yet it has its working title.
accepts() { echo | "$compiler" "-std=$1" -x c++ -fsyntax-only - 2>/dev/null; }
newest=c++23
accepts $newest || newest=c++2b

echo '#include <muster.hpp>' >"$work/alone.cpp"
for standard in c++17 c++20 $newest; do
    echo "$compiler -std=$standard"
    "$compiler" -std=$standard $strict $folders "$work/alone.cpp"
    # What comes from C's headers has C's casts.
    for test in cpp_values cpp_cluster cpp_requests cpp_results_thrown; do
        "$compiler" -std=$standard $strict -Wno-old-style-cast $folders "$tests/$test.cpp"
    done
    "$compiler" -std=$standard $strict -Wno-old-style-cast -fno-exceptions $folders "$tests/cpp_results.cpp"
done

# With char8_t, as in C++20.
refused() { "$compiler" -std=c++17 -fchar8_t -Wall -Wextra -Werror -fsyntax-only $folders "-DCASE=$1" "$tests/cpp_refused.cpp" 2>"$work/told"; }
refused 0 || { cat "$work/told" >&2; exit 1; }
cases=$(sed -nE 's/^#(el)?if CASE == ([0-9]+) .*/\2/p' "$tests/cpp_refused.cpp")
[ "$(echo "$cases" | wc -l)" -ge 13 ] || { echo "too few cases were found" >&2; exit 1; }
for case in $cases; do
    words=$(sed -nE "s/^#(el)?if CASE == $case \/\/ (.*)/\2/p" "$tests/cpp_refused.cpp")
    if refused "$case"; then echo "case $case compiles" >&2; exit 1; fi
    grep -qE "error: .*($words)" "$work/told" || { echo "case $case does not say: $words" >&2; cat "$work/told" >&2; exit 1; }
done
