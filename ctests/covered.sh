#!/bin/sh
# Every function of the header is called in these files. muster.hpp also hands functions on by their names, and names every status;
# where a function has a form for keys with a length (_bytes), it takes that one.
# covered.sh <muster.h> <file>...
set -eu
header=$1
shift
functions=$(grep -oE '\bmuster_[a-z0-9_]+\(' "$header" | tr -d '(' | sort -u)
[ "$(echo "$functions" | wc -l)" -gt 40 ] || { echo "too few functions were found in $header" >&2; exit 1; }
code=$(sed 's@^ *//.*@@' "$@")
case $1 in
*.hpp) behind='[(,>)]' functions="$functions $(grep -oE '\bMUSTER_ERR_[A-Z_]+ ' "$header" | sort -u)" ;;
*) behind='[(]' ;;
esac
missing=0
for function in $functions; do
    case "$1 $functions " in *.hpp*"
${function}_bytes
"*) continue ;; esac
    echo "$code" | grep -qE "\b$function$behind" || { echo "$function is not called in $*" >&2; missing=1; }
done
exit $missing
