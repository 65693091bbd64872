# What quickstart and check share. To be sourced by bash, from the root of the checkout.

if [[ -t 1 && -z "${NO_COLOR:-}" ]]; then
    bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
    bold='' dim='' red='' green='' plain=''
fi

# say TEXT: a line for the person.
say() { printf '%s\n' "$*"; }

# fail SENTENCE: the end, with what to do.
fail() {
    printf '\n%s%s%s\n' "$red" "$*" "$plain" >&2
    exit 1
}

# seconds_since START: 75 -> "1 min 15 s".
seconds_since() {
    local s=$((SECONDS - $1))
    if ((s >= 60)); then printf '%d min %d s' $((s / 60)) $((s % 60)); else printf '%d s' "$s"; fi
}

# as_root COMMAND...: runs it as root; status 99 if there is no way to.
as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
        say "${dim}  (sudo may ask for your password)${plain}"
        sudo "$@"
    else
        return 99
    fi
}

# apt_install PACKAGE...: from the system's own package manager; status 1 if that cannot be done.
apt_install() {
    command -v apt-get >/dev/null || return 1
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@")
    # A fresh image has no package lists; old ones name packages that are gone.
    if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        as_root "${install[@]}" && return 0
        (($? == 99)) && return 1
    fi
    as_root apt-get update -q && as_root "${install[@]}"
}

# missing_for_llama: the Debian packages that crates/local needs and that are not here, one per line.
missing_for_llama() {
    command -v c++ >/dev/null || echo build-essential
    command -v make >/dev/null || command -v ninja >/dev/null || echo build-essential
    command -v cmake >/dev/null || echo cmake
    # bindgen loads libclang and needs clang's own headers; the -dev package brings both. A libclang-cpp, which
    # comes with other packages, is a different library.
    [[ -n "${LIBCLANG_PATH:-}" ]] || compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so*' >/dev/null || echo libclang-dev
}

# need_rust: cargo, and new enough.
need_rust() {
    # rustup puts it there; a shell that was open before does not know yet.
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null && command -v rustc >/dev/null ||
        fail "Rust is missing: install it with rustup (the Rust project's website says how), open a new shell and run $0 again."
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    have=$(rustc --version | cut -d ' ' -f 2)
    [[ $(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1) == "$wanted" ]] ||
        fail "Rust $have is too old, $wanted or newer is needed: run 'rustup update' (or install Rust with rustup instead of the system's package) and run $0 again."
}

# need_tool COMMAND PACKAGE: there, or installed from the package.
need_tool() {
    command -v "$1" >/dev/null && return 0
    say "  installing $2 (for $1)"
    apt_install "$2" && command -v "$1" >/dev/null && return 0
    fail "$1 is missing: install it (on Debian: sudo apt-get install $2) and run $0 again."
}

# target_dir [MANIFEST]: where cargo puts what it builds for that workspace.
target_dir() {
    cargo metadata --format-version 1 --no-deps --offline --manifest-path "${1:-Cargo.toml}" 2>/dev/null |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Tasks beside each other: each has a log and runs in a process group of its own, so that all of it can be stopped.
tasks=()
declare -A task_pid=() task_code=() task_begun=() task_took=()
task_logs=

# begin NAME COMMAND...
begin() {
    local name=$1
    shift
    [[ -n $task_logs ]] || task_logs=$(mktemp -d)
    tasks+=("$name")
    task_begun[$name]=$SECONDS
    set -m
    "$@" >"$task_logs/$name" 2>&1 </dev/null &
    task_pid[$name]=$!
    set +m
}

# await NAME...: waits for these, and shows how far all tasks are. Status 1 as soon as one of them failed, which has said why.
await() {
    local name open lines=0 told=$SECONDS
    while :; do
        open=no
        for name in "${tasks[@]}"; do
            [[ -z ${task_code[$name]:-} ]] || continue
            if kill -0 "${task_pid[$name]}" 2>/dev/null; then
                [[ " $* " == *" $name "* ]] && open=yes
                continue
            fi
            task_code[$name]=0
            wait "${task_pid[$name]}" || task_code[$name]=$?
            task_took[$name]=$(seconds_since "${task_begun[$name]}")
        done
        if [[ -t 1 ]]; then
            ((lines == 0)) || printf '\e[%dA\e[J' "$lines"
            lines=${#tasks[@]}
            for name in "${tasks[@]}"; do how_far "$name" | cut -c "1-$(($(tput cols 2>/dev/null || echo 80) - 1))"; done
        elif ((SECONDS >= told + 30)); then
            told=$SECONDS
            for name in "${tasks[@]}"; do how_far "$name"; done
        fi
        for name in "$@"; do
            [[ ${task_code[$name]:-0} == 0 ]] && continue
            task_log "$name" | grep -v '^ *Building \[' | tail -n 40 >&2
            return 1
        done
        [[ $open == yes ]] || return 0
        sleep 1
    done
}

# task_log NAME: what it said, line by line and without colours.
task_log() { tr '\r' '\n' <"$task_logs/$1" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -v '^ *$'; }

# how_far NAME: one line.
how_far() {
    local at
    case ${task_code[$1]:-} in
        '') at=$(task_log "$1" | tail -n 1 | sed 's/^ *Building \[[^]]*\] *//; s/^ *//') || true ;;
        0) at="done, ${task_took[$1]}" ;;
        *) at="failed, ${task_took[$1]}" ;;
    esac
    printf '   %-12s %s\n' "$1" "${at:-begins}"
}

# stop_tasks: ends whatever still runs.
stop_tasks() {
    local name
    for name in "${tasks[@]}"; do
        [[ -n ${task_code[$name]:-} ]] || kill -- "-${task_pid[$name]}" 2>/dev/null || true
    done
    [[ -z $task_logs ]] || rm -rf "$task_logs"
}
