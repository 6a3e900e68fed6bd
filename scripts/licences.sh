#!/bin/sh
# Prints the licences of all that the library and the command carry within them: licences.sh <cargo's features, or nothing>
set -eu
# Where the crates lie: cargo's own folder, or one into which a distribution has put them (cargo vendor).
host=$(rustc -vV | sed -n 's/^host: //p')
folders=$(cargo metadata --locked --format-version 1 --filter-platform "$host" | tr ',' '\n' | sed -n 's|^"manifest_path":"\(.*\)/Cargo.toml"}*$|\1|p')
echo "muster carries these crates within it. Each stands here with its licence, and the text that came with it."
cargo tree --locked --edges normal,no-proc-macro --prefix none --format '{p}|{l}' "$@" | sed 's/ (\*)$//' | sort -u |
    while IFS='|' read -r crate licence; do
        name=${crate%% *}
        version=${crate#* v}
        version=${version%% *}
        [ "$name" = muster ] && continue
        printf '\n%s\n%s %s: %s\n' "========================================" "$name" "$version" "$licence"
        own=$(printf '%s\n' "$folders" | grep -E "/$name(-$version)?\$") || { echo "licences.sh: no folder of $name $version" >&2; exit 1; }
        for folder in $own; do
            for text in "$folder"/LICEN[CS]E* "$folder"/COPYING*; do
                [ -f "$text" ] || continue
                printf '\n--- %s\n' "${text##*/}"
                cat "$text"
            done
        done
    done
