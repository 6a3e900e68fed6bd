#!/bin/sh
# Makes of cargo's static library one in which nothing is global but what the header declares, so that a program can hold a
# second Rust library beside it: static_library.sh <cargo's archive> <list of symbols> <archive to make>
set -eu
cargos=$1 symbols=$2 made=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

wanted=$(sed 's/^/--undefined=/' "$symbols")
# Sections that several objects may bring (COMDAT) are settled here: what is local afterwards cannot be shared with others.
# shellcheck disable=SC2086 # one word each
ld --relocatable --force-group-allocation $wanted -o "$work/whole.o" "$cargos"
# The compiler's intermediate code would make of the object one that `ar` and `nm` hand to a plugin.
objcopy --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd --keep-global-symbols="$symbols" \
    "$work/whole.o" "$work/muster.o"
rm -f "$made"
(cd "$work" && ar rcs made.a muster.o)
mv "$work/made.a" "$made"
