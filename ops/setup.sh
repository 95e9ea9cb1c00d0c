# Makes the checkout's own virtual environment. Sourced by ops/start and ops/test, which set $root.
#
# prepare runtime   the broker            (requirements.lock)
# prepare test      and all of its tests  (requirements-test.lock too)
#
# A stamp in .venv remembers what was installed, so that a second run installs nothing. Packages come
# from wherever this machine's pip is configured to take them.

venv="$root/.venv"

# Where this is set, every start would compile the whole checkout anew, which takes longer than all else in it.
unset PYTHONDONTWRITEBYTECODE

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# install_debian COMMAND PACKAGE...: installs Debian packages unless COMMAND succeeds already.
install_debian() {
    command=$1
    shift
    if sh -c "$command" >/dev/null 2>&1; then
        return
    fi
    [ "$(id -u)" = 0 ] || fail "missing: $*. Install it with: sudo apt-get install $*"
    command -v apt-get >/dev/null || fail "missing: $*, and this machine has no apt-get to install it with"
    echo "installing $*" >&2
    {
        apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >&2 || fail "could not install $*"
}

find_python() {
    # The distribution's own interpreter comes first: it is built with profile-guided optimisation, which makes the
    # broker a third faster than a plain build of the same version.
    for python in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return
        fi
    done
    fail "needs Python 3.11 or newer, and none was found on the PATH"
}

# The stamp holds for this place and this interpreter: scripts in the environment name both.
stamp_of() {
    {
        echo "$root"
        readlink -f "$venv/bin/python" || true
        # Of the compiled module: its sources, and whether it can be built here.
        command -v cc || true
        cd "$root"
        cat broker/native/*.[ch]
        case $1 in
            runtime) cat pyproject.toml requirements.lock ;;
            test) cat pyproject.toml requirements.lock requirements-test.lock ;;
        esac
    } | sha256sum | cut -d ' ' -f 1
}

is_prepared() {
    [ -x "$venv/bin/python" ] && [ "$(cat "$venv/stamp-$1" 2>/dev/null)" = "$(stamp_of "$1")" ]
}

# An environment that was moved or whose interpreter is gone is of no use and made anew.
is_usable() {
    grep -q "^command = .* $venv\$" "$venv/pyvenv.cfg" 2>/dev/null &&
        "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

make_venv() {
    if is_usable; then
        return
    fi
    install_debian 'command -v python3' python3 python3-venv
    find_python
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        case $(command -v "$python") in
            */python3) install_debian false python3-venv ;;
            *) install_debian false "python$version-venv" ;;
        esac
    fi
    echo "making $venv with Python $version" >&2
    "$python" -m venv --clear "$venv" >&2
}

prepare() {
    if is_prepared "$1"; then
        return
    fi
    make_venv
    rm -f "$venv/stamp-runtime" "$venv/stamp-test"
    echo "installing from the lock into $venv" >&2
    case $1 in
        runtime) set -- runtime -r "$root/requirements.lock" ;;
        # Tests import, and so compile, a quarter of it.
        test) set -- test --no-compile -r "$root/requirements.lock" -r "$root/requirements-test.lock" ;;
    esac
    wanted=$1
    shift
    pip_install "$@"
    # Up to version 0.1 the package had the name of the command; both would bring the plugin of pytest.
    "$venv/bin/python" -m pip uninstall --quiet --yes rotunda >/dev/null 2>&1 || true
    # The lock has the build tool, so nothing is fetched to build; what runs is the checkout itself.
    pip_install --no-deps --no-build-isolation --editable "$root"
    # What pip installs it compiles as well, except a checkout. One that cannot be written to does without.
    "$venv/bin/python" -m compileall -q "$root"/ops/package/rotunda/*/ || true
    stamp_of runtime >"$venv/stamp-runtime"
    if [ "$wanted" = test ]; then
        stamp_of test >"$venv/stamp-test"
    fi
}

# prepare_clients PART...: brings the clients in other languages (java, go, node) that tests run against the broker.
prepare_clients() {
    (cd "$root" && "$venv/bin/python" -m ops.compatibility.preparation "$@") || fail "could not prepare the clients: $*"
}

pip_install() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
        "$venv/bin/python" -m pip install --quiet "$@" >&2 || fail "pip could not install the packages"
}
