#!/bin/sh
# Builds Debian's source and binary packages from a copy of the tree: debian.sh <folder to build in>
# They lie in that folder afterwards, in the place of older ones. What cargo has built in the copy before is used again.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$tree/Cargo.toml")
mkdir -p "$1/muster-$version"
folder=$(cd "$1" && pwd)
copy=$folder/muster-$version
find "$folder" -maxdepth 1 -type f \( -name 'muster*_*' -o -name 'libmuster*_*' -o -name 'python3-muster*_*' \) -delete
find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
tar -C "$tree" --create --exclude=./target --exclude-vcs --exclude-vcs-ignores . | tar -C "$copy" --extract

# Without Debian's cargo, or with too old a one, the one on the path is taken.
profile=
dpkg --compare-versions "$(dpkg-query --show --showformat='${Version}' cargo 2>/dev/null || echo 0)" ge 1.89 || profile=-Ppkg.muster.rustup
cd "$copy"
# Make's own words for the one who called this would be taken for those of the packages' build.
# shellcheck disable=SC2086 # empty or one word
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS dpkg-buildpackage --unsigned-source --unsigned-changes $profile
