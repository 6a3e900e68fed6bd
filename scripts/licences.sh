#!/bin/sh
# Prints the licences of all that the library and the command carry within them: licences.sh <cargo's features, or nothing>
set -eu
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
echo "muster carries these crates within it. Each stands here with its licence, and the text that came with it."
cargo tree --locked --edges normal,no-proc-macro --prefix none --format '{p}|{l}' "$@" | sed 's/ (\*)$//' | sort -u |
    while IFS='|' read -r crate licence; do
        name=${crate%% *}
        version=${crate#* v}
        version=${version%% *}
        [ "$name" = muster ] && continue
        printf '\n%s\n%s %s: %s\n' "========================================" "$name" "$version" "$licence"
        for text in "$sources"/*/"$name-$version"/LICEN[CS]E* "$sources"/*/"$name-$version"/COPYING*; do
            [ -f "$text" ] || continue
            printf '\n--- %s\n' "${text##*/}"
            cat "$text"
        done
    done
