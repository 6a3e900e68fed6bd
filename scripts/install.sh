#!/bin/sh
# Lays down what was built, or takes the same files away: install.sh install|uninstall
# The Makefile says from where (RELEASE, VERSION) and whereto (PREFIX, LIBDIR, DESTDIR).
# STRIP=no leaves debug information where it is, for tools that take it out themselves.
# Nothing that is laid down has DESTDIR in it, or PREFIX: the folders can be moved as a whole.
set -eu
umask 022 # all users may read what is laid down, and one may write
action=$1
tree=$(cd "$(dirname "$0")/.." && pwd)
case $PREFIX in /*) ;; *) echo "PREFIX is \"$PREFIX\": an absolute path is needed" >&2; exit 1 ;; esac
case $LIBDIR in /*) ;; *) LIBDIR=$PREFIX/$LIBDIR ;; esac
abi=${VERSION%%.*}
include=$PREFIX/include
share=$PREFIX/share

if [ "$action" = install ]; then
    for built in muster libmuster.so libmuster.a licences.txt; do
        [ -e "$RELEASE/$built" ] || { echo "$RELEASE/$built is missing: run \`make library\` first" >&2; exit 1; }
        [ -r "$RELEASE/$built" ] && [ -s "$RELEASE/$built" ] || { echo "$RELEASE/$built cannot be read, or is empty" >&2; exit 1; }
    done
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
fi

# file <mode> <path> <what to copy>
file() {
    if [ "$action" = install ]; then
        mkdir -p "$DESTDIR$(dirname "$2")"
        install -m "$1" "$3" "$DESTDIR$2"
    else
        rm -f "$DESTDIR$2"
    fi
}
# text <path> <command>...: what the command prints
text() {
    path=$1
    shift
    if [ "$action" = install ]; then "$@" >"$work/text"; fi
    file 644 "$path" "${work:-}/text"
}
# link <path> <where it leads>
link() {
    if [ "$action" = install ]; then
        mkdir -p "$DESTDIR$(dirname "$1")"
        ln -sfn "$2" "$DESTDIR$1"
    else
        rm -f "$DESTDIR$1"
    fi
}
# folder <path>: it is muster's alone, and goes with its files
folder() {
    if [ "$action" = uninstall ]; then rmdir "$DESTDIR$1" 2>/dev/null || :; fi
}
# filled <template>: with the version, and with the ways from one folder to another
filled() {
    sed -e "s|@VERSION@|$VERSION|g" -e "s|@ABI@|$abi|g" -e "s|@PREFIX@|$(way "$LIBDIR/pkgconfig" "$PREFIX")|g" \
        -e "s|@LIBDIR@|$(way "$PREFIX" "$LIBDIR")|g" -e "s|@INCLUDEDIR@|$(way "$LIBDIR/cmake/muster" "$include")|g" "$tree/packaging/$1"
}
way() { realpath --canonicalize-missing --no-symlinks --relative-to="$1" "$2"; }

if [ "$action" = install ] && [ "${STRIP:-yes}" = no ]; then
    cp "$RELEASE/libmuster.so" "$RELEASE/muster" "$work"
elif [ "$action" = install ]; then
    # Without debug information the library and the command are small; it lies beside the library, where gdb looks.
    objcopy --only-keep-debug "$RELEASE/libmuster.so" "$work/libmuster.so.$VERSION.debug"
    objcopy --strip-unneeded "$RELEASE/libmuster.so" "$work/libmuster.so"
    (cd "$work" && objcopy --add-gnu-debuglink="libmuster.so.$VERSION.debug" libmuster.so)
    objcopy --strip-debug "$RELEASE/muster" "$work/muster"
fi
if [ "$action" = install ]; then
    "$tree/scripts/static_library.sh" "$RELEASE/libmuster.a" "$tree/abi/symbols.txt" "$work/libmuster.a"
fi
file 644 "$include/muster.h" "$tree/include/muster.h"
file 644 "$include/muster.hpp" "$tree/bindings/cpp/muster.hpp"
file 755 "$LIBDIR/libmuster.so.$VERSION" "${work:-}/libmuster.so"
if [ "$action" = uninstall ] || [ "${STRIP:-yes}" != no ]; then
    file 644 "$LIBDIR/libmuster.so.$VERSION.debug" "${work:-}/libmuster.so.$VERSION.debug"
fi
link "$LIBDIR/libmuster.so.$abi" "libmuster.so.$VERSION"
link "$LIBDIR/libmuster.so" "libmuster.so.$abi"
# Another version of the same ABI would be found again by ldconfig.
for old in "$DESTDIR$LIBDIR/libmuster.so.$abi".*; do
    case ${old##*/} in "libmuster.so.$VERSION" | "libmuster.so.$VERSION.debug") ;; *) rm -f "$old" ;; esac
done
file 644 "$LIBDIR/libmuster.a" "${work:-}/libmuster.a"
text "$LIBDIR/pkgconfig/muster.pc" filled muster.pc
text "$LIBDIR/pkgconfig/muster-static.pc" filled muster-static.pc
text "$LIBDIR/cmake/muster/musterConfig.cmake" filled musterConfig.cmake
text "$LIBDIR/cmake/muster/musterConfigVersion.cmake" filled musterConfigVersion.cmake
file 644 "$LIBDIR/cmake/muster/musterTargets.cmake" "$tree/packaging/musterTargets.cmake"
folder "$LIBDIR/cmake/muster"

file 755 "$PREFIX/bin/muster" "${work:-}/muster"
link "$PREFIX/bin/msrun" muster
text "$share/man/man1/muster.1" "$RELEASE/muster" man
link "$share/man/man1/msrun.1" muster.1
text "$share/bash-completion/completions/muster" "$RELEASE/muster" completion bash
link "$share/bash-completion/completions/msrun" muster
text "$share/zsh/site-functions/_muster" "$RELEASE/muster" completion zsh
text "$share/fish/vendor_completions.d/muster.fish" "$RELEASE/muster" completion fish
link "$share/fish/vendor_completions.d/msrun.fish" muster.fish
for licence in LICENSE-APACHE LICENSE-MIT; do
    file 644 "$share/doc/muster/$licence" "$tree/$licence"
done
file 644 "$share/doc/muster/licences.txt" "$RELEASE/licences.txt"
folder "$share/doc/muster"
