#!/bin/sh
# Makes a component of connector.c. The compiler is installed into the directory `venv`, and nothing anywhere else.
#
# ZIG             the compiler [default: that of the Python package ziglang, in `venv`]
# COMPONENT_LD    the linker of components [default: the one on PATH, or that of rustup]
# OUT             the component [default: the name of this directory, with '_' for '-', and `.wasm`]
# BUILD           directory of what is compiled [default: build]
set -eu
cd "$(dirname "$0")"

: "${OUT:=$(basename "$PWD" | tr - _).wasm}"
: "${BUILD:=build}"
: "${ZIG_GLOBAL_CACHE_DIR:=$PWD/build/cache}"
: "${ZIG_LOCAL_CACHE_DIR:=$ZIG_GLOBAL_CACHE_DIR}"
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
mkdir -p "$BUILD"

if [ -z "${ZIG:-}" ]; then
    ZIG=$PWD/venv/bin/python-zig
    if [ ! -x "$ZIG" ]; then
        "${PYTHON:-python3}" -m venv venv
        venv/bin/pip install --quiet --disable-pip-version-check ziglang==0.17.1
    fi
fi

if [ -z "${COMPONENT_LD:-}" ]; then
    COMPONENT_LD=$(command -v wasm-component-ld || ls "$(rustc --print sysroot)"/lib/rustlib/*/bin/wasm-component-ld) || {
        echo "wasm-component-ld is missing: rustup brings it, and cargo install wasm-component-ld installs it" >&2
        exit 1
    }
fi

TARGET='-target wasm32-wasi -mexec-model=reactor -Os'
for file in connector bindings/source_connector; do
    "$ZIG" cc $TARGET -Wall -Wextra -Werror -Ibindings -c "$file.c" -o "$BUILD/$(basename "$file").o"
done

# The linker of components has this link a module, and makes a component of it. Without an adapter for WASI: a component
# of Forebay imports only what wit/connector.wit has.
printf '#!/bin/sh\nexec "%s" cc %s -s "$@"\n' "$ZIG" "$TARGET" > "$BUILD/link"
chmod +x "$BUILD/link"
"$COMPONENT_LD" --wasm-ld-path "$BUILD/link" --wasi-adapter none -o "$OUT" \
    "$BUILD/connector.o" "$BUILD/source_connector.o" bindings/source_connector_component_type.o
