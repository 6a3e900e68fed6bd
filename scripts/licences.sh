#!/bin/sh
# Prints the licences of all that the library and the command carry within them: licences.sh <cargo's features, or nothing>
set -eu
# Cargo, too, looks in the user database if the environment names no home.
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
cached=${CARGO_HOME:-$home/.cargo}/registry/src
# Where a packager has put the crates (`cargo vendor`), cargo knows their folders: name@version|folder. Otherwise it tells them only if
# the crates of the tests have been downloaded, too, and there is its cache. An id without a name is that of a folder with the name
# of its package: muster itself, or nothing that is carried.
known=$(cargo metadata --locked --offline --format-version 1 "$@" 2>/dev/null | tr ',' '\n' |
    sed -n -e 's/^"id":".*[#/]\(.*@.*\)"$/=\1/p;t' -e 's/^"id":.*$/=/p' -e 's/^"manifest_path":"\(.*\)\/Cargo.toml".*$/\1/p' |
    while read -r line; do
        case $line in
            =*) crate=${line#=} ;;
            *) echo "${crate-}|$line" ;;
        esac
    done)
echo "muster carries these crates within it. Each stands here with its licence, and the text that came with it."
carried=$(cargo tree --locked --edges normal,no-proc-macro --prefix none --format '{p}|{l}' "$@")
printf '%s\n' "$carried" | sed 's/ (\*)$//' | sort -u |
    while IFS='|' read -r crate licence; do
        name=${crate%% *}
        version=${crate#* v}
        version=${version%% *}
        [ "$name" = muster ] && continue
        printf '\n%s\n%s %s: %s\n' "========================================" "$name" "$version" "$licence"
        folder=$(printf '%s\n' "$known" | sed -n "s#^$name@$version|##p")
        [ -n "$folder" ] || folder=$(find "$cached" -mindepth 2 -maxdepth 2 -name "$name-$version" 2>/dev/null | head -n 1)
        [ -n "$folder" ] || { echo "licences.sh: the sources of $name $version are not in $cached" >&2; exit 1; }
        for text in "$folder"/LICEN[CS]E* "$folder"/COPYING*; do
            [ -f "$text" ] || continue
            printf '\n--- %s\n' "${text##*/}"
            cat "$text"
        done
    done
