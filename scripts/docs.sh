#!/usr/bin/env bash
# Builds the site of docs/ into build/site: pages that load nothing from the network. build/site/index.html
# opens as a file; browsers let the search run only where a server hands the pages out.
#   scripts/docs.sh [--serve]     --serve: on http://127.0.0.1:8000, built again when a page changes
# The tools have to be built: their own words are the reference. MkDocs is installed into build/docs-venv.
# Exit codes: 1 the site has a mistake (a link, an anchor, a page that is in no menu), 2 bad usage, 3
# something is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command=(build --strict --clean)
case $#:${1:-} in
  0:) ;;
  1:--serve) command=(serve --strict) ;;
  *) echo "usage: scripts/docs.sh [--serve]" >&2; exit 2 ;;
esac

lacking() { echo "docs: $*" >&2; exit 3; }
for tool in fusion-opt fusion-run fusion-compile fusion-cache fusion-fuzz; do
  [ -x "build/bin/$tool" ] || lacking "build/bin/$tool is not built: scripts/setup.sh builds it"
done
missing=()
for tool in doxygen:doxygen dot:graphviz mlir-tblgen-22:mlir-22-tools llvm-tblgen-22:llvm-22-dev; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [ ${#missing[@]} != 0 ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || lacking "install ${missing[*]}"
  echo "docs: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  "${install[@]}" >/dev/null 2>&1 || { apt-get update -q >/dev/null && "${install[@]}" >/dev/null; } ||
    lacking "could not install ${missing[*]}"
fi

venv=build/docs-venv packages=('mkdocs-material>=9.7,<10' 'mkdocstrings-python>=2,<3' 'black>=25') # black breaks long signatures
if ! [ -x $venv/bin/mkdocs ] || [ "$(cat $venv/packages 2>/dev/null)" != "${packages[*]}" ]; then
  echo "docs: installing ${packages[*]} into $venv" >&2
  { python3 -m venv --clear $venv &&
    $venv/bin/pip install -q --disable-pip-version-check "${packages[@]}"; } ||
    lacking "could not install ${packages[*]}"
  echo "${packages[*]}" >$venv/packages
fi

export NO_MKDOCS_2_WARNING=1
[ "${command[0]}" = build ] || exec $venv/bin/mkdocs "${command[@]}"
log=$($venv/bin/mkdocs "${command[@]}" 2>&1) || { grep -v '^INFO' <<<"$log" >&2; exit 1; }
# A page that loads something from the network is not the page that was checked.
network='(https?:)?//'
loads="<(script|img|iframe)[^>]* src=\"?$network|<link[^>]* href=\"?$network[^>]*stylesheet|url\\($network"
! grep -rlE "$loads" --include='*.html' --include='*.css' build/site ||
  { echo "docs: these load something from the network" >&2; exit 1; }
echo "docs: build/site/index.html"
