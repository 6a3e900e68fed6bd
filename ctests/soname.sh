#!/bin/sh
# The library's SONAME carries the ABI number, and a program that was linked against it needs it under that name.
# soname.sh <library> <program>
set -eu
dynamic() { # <file> <tag>
    objdump -p "$1" | awk -v tag="$2" '$1 == tag { print $2 }'
}
soname=$(dynamic "$1" SONAME)
[ "$soname" = libmuster.so.1 ] || { echo "SONAME of $1 is \"$soname\": expected libmuster.so.1" >&2; exit 1; }
dynamic "$2" NEEDED | grep -qx libmuster.so.1 || { echo "$2 does not need libmuster.so.1" >&2; exit 1; }
# It needs the C library and what belongs to it, and nothing else.
usual='^(libc|libm|libpthread|libdl|librt|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.[0-9]+$'
strange=$(dynamic "$1" NEEDED | grep -vE "$usual" || true)
[ -z "$strange" ] || { echo "$1 needs more than the C library: $strange" >&2; exit 1; }
