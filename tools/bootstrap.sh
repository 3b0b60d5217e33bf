#!/bin/sh
# Make this tree runnable, then run a command in it:  bootstrap.sh [--java] [command ...]
#
# Builds .venv when it is missing or stale; with --java also sees to it that Spark finds
# Java 17 or newer. When all is in place this costs milliseconds. It writes to .venv only;
# system packages are installed with apt as root, otherwise it says what to install.
set -eu
cd "$(dirname "$0")/.."

PYTHON_MIN=3.11
JAVA_MIN=17
VENV_PYTHON=.venv/bin/python
STAMP=.venv/.built # holds the folder it was built in; as new as the pyproject.toml it was built from

say() { printf '%s\n' "headrace: $*" >&2; }
die() { say "$@" && exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

apt_install() { # the first of these packages that there is
    [ "$(id -u)" = 0 ] && has apt-get || return 1
    apt-get update -qq >&2 || true
    for package in "$@"; do
        say "installing $package with apt, as root"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "$package" >/dev/null 2>&1 && return 0
    done
    return 1
}

# --- Python ---------------------------------------------------------------------------

python_runs() { # a shim on the PATH may have no Python behind it, so try
    "$1" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$PYTHON_MIN'.split('.'))))" \
        >/dev/null 2>&1
}

find_python() {
    for python in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python; do
        python_runs "$python" && return 0
    done
    python=
}

no_python() {
    die "no Python $PYTHON_MIN or newer on the PATH. Install one, then run make again:
  Debian, Ubuntu   sudo apt-get install python3 python3-venv
  Fedora, RHEL     sudo dnf install python3.12
  macOS            brew install python@3.12
or say where it is:  make PYTHON=/path/to/python3 test"
}

make_venv() {
    find_python
    rm -rf .venv
    if has uv; then
        say "making .venv with uv"
        uv venv --quiet --seed --python "${python:->=$PYTHON_MIN}" .venv && return 0
        say "uv could not make .venv; trying without it"
    fi
    [ -n "$python" ] || no_python
    say "making .venv with $("$python" --version 2>&1)"
    if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then # Debian ships Python without it
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" ||
            die "this Python cannot make virtual environments. Install the missing part, then run make again:
  Debian, Ubuntu   sudo apt-get install python$version-venv"
    fi
    "$python" -m venv .venv
}

install() {
    if has uv && uv pip install --quiet --compile-bytecode --python "$VENV_PYTHON" --editable '.[dev]'; then return 0; fi
    "$VENV_PYTHON" -m pip --version >/dev/null 2>&1 || "$VENV_PYTHON" -m ensurepip >/dev/null
    "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
}

venv_usable() { # its scripts name the folder it was made in: a moved tree needs a new one
    python_runs "$VENV_PYTHON" && [ "$(cat "$STAMP" 2>/dev/null || echo "$PWD")" = "$PWD" ]
}

venv_fresh() {
    venv_usable && [ -f "$STAMP" ] && [ -z "$(find pyproject.toml -newer "$STAMP")" ]
}

ready_venv() {
    if venv_fresh; then return 0; fi
    venv_usable || make_venv
    printf '%s\n' "$PWD" >"$STAMP.new" # dated before the install: an edit meanwhile counts
    say "installing the dependencies (PySpark is 400 MB: some minutes the first time, then cached)"
    install || die "the dependencies could not be installed; the reason is above.
Without a direct way to a package index, set PIP_INDEX_URL (for uv: UV_DEFAULT_INDEX) to one you can reach."
    # Spark starts many Python processes: none should compile anything, even where writing
    # bytecode is turned off.
    "$VENV_PYTHON" -m compileall -q src || true
    mv "$STAMP.new" "$STAMP"
}

# --- Java -----------------------------------------------------------------------------

java_version() { # 17 for "17.0.15", 8 for "1.8.0_392", 0 when it does not run
    version=$("$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p')
    echo "${version:-0}"
}

find_java() { # sets JAVA_HOME when the java that Spark would take is too old
    if [ -n "${JAVA_HOME:-}" ]; then
        if [ "$(java_version "$JAVA_HOME/bin/java")" -ge "$JAVA_MIN" ]; then return 0; fi
        say "JAVA_HOME is not a Java $JAVA_MIN or newer; looking for another"
        unset JAVA_HOME
    fi
    if [ "$(java_version java)" -ge "$JAVA_MIN" ]; then return 0; fi
    lowest=1000 # nearest to what Spark is tested with
    for home in /usr/lib/jvm/* "${HOMEBREW_PREFIX:-/opt/homebrew}"/opt/openjdk* \
        /usr/local/opt/openjdk* /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        [ -x "$home/bin/java" ] || continue
        version=$(java_version "$home/bin/java")
        if [ "$version" -ge "$JAVA_MIN" ] && [ "$version" -lt "$lowest" ]; then
            lowest=$version JAVA_HOME=$home
        fi
    done
    [ -n "${JAVA_HOME:-}" ] || return 1
    export JAVA_HOME
    say "using Java $lowest in $JAVA_HOME"
}

ready_java() {
    if find_java; then return 0; fi
    say "Spark needs Java $JAVA_MIN or newer, and there is none"
    apt_install openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless || true
    find_java || die "install Java, then run make again:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora, RHEL     sudo dnf install java-21-openjdk-headless
  macOS            brew install openjdk@17
or, if there is one somewhere else, set JAVA_HOME to its folder."
}

ready_archive() { # of the classes that Spark loads: every later start is seconds shorter
    if [ -n "$(find .venv/share/headrace -name '*.jsa' -newer "$STAMP" 2>/dev/null)" ]; then
        return 0
    fi
    say "preparing Spark's class archive (once, about half a minute; halves every later start)"
    .venv/bin/headrace warm >.venv/archive.log 2>&1 ||
        say "no archive could be made (see .venv/archive.log); Spark will only start more slowly"
}

# --- A broker -------------------------------------------------------------------------

ready_broker() { # for the tests of MQTT, which are skipped where there is none
    PATH=$PATH:/usr/sbin has mosquitto || apt_install mosquitto ||
        say "no mosquitto: the tests of MQTT will be skipped"
}

ready_promtool() { # for the test of /metrics; taken out of its package, which would start a server
    has promtool || [ -x .venv/bin/promtool ] && return 0
    if has apt-get && has dpkg-deb; then
        say "fetching promtool (20 MB) with apt; nothing is installed"
        (
            cd .venv && apt-get download -qq prometheus >/dev/null 2>&1 &&
                dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x -C . ./usr/bin/promtool &&
                mv usr/bin/promtool bin/promtool
            rm -rf prometheus_*.deb usr
            [ -x bin/promtool ]
        ) && return 0
    fi
    say "no promtool: what /metrics says will not be checked with it"
}

ready_systemd() { # for the test of the server's unit, which is skipped where there is none
    [ "$(uname)" = Linux ] || return 0
    has systemd-analyze || apt_install systemd ||
        say "no systemd-analyze: the server's unit will not be verified"
}

ready_browser() { # for the tests of the page, which are skipped where there is none
    has chromium || has chromium-browser || apt_install chromium chromium-browser ||
        say "no chromium: the tests of the page will be skipped"
}

# --- Do it ----------------------------------------------------------------------------

java=no
if [ "${1:-}" = --java ]; then
    shift
    java=yes
    ready_java
    ready_broker
    ready_browser
    ready_systemd
fi
ready_venv
if [ $java = yes ]; then ready_archive && ready_promtool; fi
if [ $# -gt 0 ]; then exec "$@"; fi
