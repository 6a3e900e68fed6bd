#!/bin/sh
# Prints the folder of the system's cmake and ctest if both are there and new enough for examples/ and ctests/; else nothing.
needed=3.22 # ctests/CMakeLists.txt; `ctest --test-dir` came with 3.20
cmake=$(command -v cmake) || exit 0
folder=$(dirname "$cmake")
[ -x "$folder/ctest" ] || exit 0
version=$("$cmake" --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
[ -n "$version" ] || exit 0
[ "$(printf '%s\n' "$needed" "$version" | sort -V | head -n 1)" = "$needed" ] && echo "$folder"
exit 0
