#!/bin/sh
# Every function of the header is called with arguments that are not right.
# covered.sh <muster.h> <arguments.c>
set -eu
functions=$(grep -oE '\bmuster_[a-z0-9_]+\(' "$1" | tr -d '(' | sort -u)
[ "$(echo "$functions" | wc -l)" -gt 40 ] || { echo "too few functions were found in $1" >&2; exit 1; }
missing=0
for function in $functions; do
    grep -q "\b$function(" "$2" || { echo "$2 does not call $function" >&2; missing=1; }
done
exit $missing
