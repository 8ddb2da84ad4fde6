# Environments for tools/try, tools/test and tools/bench/run, which set ROOT and read this file. POSIX sh.
#
# Each environment, of Python or of node, is .tools/<name>, made once. Its stamp holds what it was made from, so that a
# changed requirement installs again and a broken-off install is never taken for whole.

TOOLS=$ROOT/.tools

complain() {
    echo "$(basename -- "$0"): $*" >&2
}

# find_python [MODULES]: the first Python on PATH that is new enough for vmnest and has these modules; without any, those
# that make environments. Sets PYTHON and PYTHON_VERSION.
find_python() {
    seen=''
    for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        command -v "$name" >/dev/null 2>&1 || continue
        if ! "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            seen="$seen $name (older)"
        elif ! "$name" -c "import ${1:-ensurepip, venv}" 2>/dev/null; then
            seen="$seen $name (has no venv module; Debian and Ubuntu: apt-get install python3-venv)"
        else
            PYTHON=$("$name" -c 'import sys; print(sys.executable)')
            PYTHON_VERSION=$(version_of "$PYTHON")
            return
        fi
    done
    complain "needs Python 3.10 or later, with its venv module, on PATH. Found:${seen:- none}"
    exit 1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# ensure_environment NAME PIP-ARGUMENT...: makes .tools/NAME, or brings it up to these arguments. Sets PLACE.
ensure_environment() {
    PLACE=$TOOLS/$1
    shift
    wanted="$PYTHON_VERSION $*"
    # A stamp in our own package's environment also holds its metadata: that is where its requirements stand.
    case $* in *"$ROOT"*) wanted="$wanted $(cat "$ROOT/pyproject.toml" "$ROOT/setup.cfg" | cksum)" ;; esac
    if [ "$(cat "$PLACE/.stamp" 2>/dev/null)" = "$wanted" ] && [ "$(version_of "$PLACE/bin/python")" = "$PYTHON_VERSION" ]; then
        return
    fi
    echo "$(basename -- "$0"): making $PLACE" >&2
    rm -f -- "$PLACE/.stamp"
    if [ "$(version_of "$PLACE/bin/python")" != "$PYTHON_VERSION" ]; then
        mkdir -p -- "$TOOLS"
        "$PYTHON" -m venv --clear "$PLACE" || exit 1
    fi
    # As variables, so that the pip that pip starts for a build has them too.
    if ! PIP_QUIET=2 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=1 \
        "$PLACE/bin/python" -m pip install "$@" >&2; then
        complain "pip could not install: $*"
        complain "It needs PyPI, or the index that pip is configured with (PIP_INDEX_URL, pip.conf), within reach."
        exit 1
    fi
    printf '%s\n' "$wanted" >"$PLACE/.stamp"
}

# A plain path entry in place of setuptools' import hook, which would cost every start of Python some milliseconds.
COMPAT='--config-settings=editable_mode=compat'

# The upstream package, with what its guest's requirements.txt names (uvicorn[standard] brings uvloop).
ensure_upstream() {
    ensure_environment upstream 'vmnest[mcp]==0.1.2' 'fastapi>=0.111' 'uvicorn[standard]>=0.30'
}

# ensure_node_modules NAME: what tests/sites/NAME/package-lock.json names, in .tools/NAME/node_modules.
ensure_node_modules() {
    PLACE=$TOOLS/$1
    listed=$ROOT/tests/sites/$1
    if ! command -v npm >/dev/null 2>&1; then
        complain "needs node and npm on PATH (Debian and Ubuntu: apt-get install nodejs npm)"
        exit 1
    fi
    wanted="node $(node --version) $(cat "$listed/package.json" "$listed/package-lock.json" | cksum)"
    if [ "$(cat "$PLACE/.stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    echo "$(basename -- "$0"): making $PLACE" >&2
    rm -rf -- "$PLACE"
    mkdir -p -- "$PLACE"
    cp -- "$listed/package.json" "$listed/package-lock.json" "$PLACE"
    # Without the packages' own install scripts: what is needed here comes whole, and they could run anything.
    if ! npm ci --prefix "$PLACE" --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel error >/dev/null; then
        complain "npm could not install what $listed/package-lock.json names."
        complain "It needs the npm registry, or the one that npm is configured with (.npmrc), within reach."
        exit 1
    fi
    printf '%s\n' "$wanted" >"$PLACE/.stamp"
}
