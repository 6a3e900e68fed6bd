#!/bin/sh
# Fails, and shows them, if sanitizers have left reports in this folder. Helgrind also writes where it has found nothing.
cd "$1" || exit 1
found=0
for report in *; do
    [ -e "$report" ] || continue
    grep -q '^==[0-9]*== \(Possible data race\|Thread #\|Process terminating\)\|^==[0-9]*==ERROR\|^valgrind:' "$report" || continue
    echo "--- $1/$report" >&2
    cat "$report" >&2
    found=$((found + 1))
done
[ "$found" = 0 ] || echo "$found reports in $1" >&2
[ "$found" = 0 ]
