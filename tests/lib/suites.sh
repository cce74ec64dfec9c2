# The suites of tests/run, one function each. A suite prints what it likes; its status decides, and the
# `test result:` lines among its output are counted.
#
# Sourced by tests/run, with ROOT, TARGET, LOGS and ARGUMENTS set.

declare -A ABOUT=(
    [tree]="the rules that hold for every file"
    [format]="cargo fmt --check"
    [clippy]="cargo clippy on all targets, warnings denied"
    [docs]="the API documentation builds without a warning"
    [test]="unit and integration tests"
    [doctest]="the examples in the documentation"
    [readme]="the commands of README.md: it measures, in text and in JSON; a tree goes in and out"
    [syscalls]="strace: no system call per I/O"
    [loom]="every interleaving of truncation and I/O in flight, model-checked"
    [cost]="callgrind: a read's budget of instructions, and that statistics that are off cost none"
    [crash]="power cuts of a simulated drive, and seeded bugs that they must find; --nightly: many more"
    [fsx]="a million random operations on files, against a reference in memory; --nightly: more"
    [fuzz]="libFuzzer on damaged images, for a minute; --nightly: for an hour"
    [hil]="a real kernel's VFIO and IOMMU, and blockfs on them, in a QEMU guest"
    [cuts]="that guest is killed at work; every image that a power cut could have left is checked"
)

# Rust itself is not ours to install.
need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "missing: cargo. Install rustup (Debian's package rustup, or the installer that" >&2
        echo "rust-lang.org names); it then fetches the version that rust-toolchain.toml names." >&2
        return 1
    fi
    need cc gcc libc6-dev || return
    # Asked once, so that a toolchain that rustup has to fetch first is not part of a suite.
    cargo --version >/dev/null
}

suite_tree() {
    need git git || return "$MISSING"
    local status=1 file lines
    git ls-files --cached --others --exclude-standard >"$LOGS/files" && status=0
    while IFS= read -r file; do
        case $file in
        *.rs)
            if [[ $(head -c 3 "$file") != '//!' ]]; then
                echo "$file: begins without a //! line that says what it is for"
                status=1
            fi
            lines=$(wc -l <"$file")
            if [[ $lines -gt 500 ]]; then
                echo "$file: $lines lines; a file is read in one sitting, 500 are the limit"
                status=1
            fi
            ;;
        */Cargo.toml)
            if ! grep -A1 '^\[lints\]' "$file" | grep -q '^workspace = true'; then
                echo "$file: does not take the workspace's lints"
                status=1
            fi
            ;;
        tests/run | .ci/run | *.sh)
            bash -n "$file" || status=1
            ;;
        esac
    done <"$LOGS/files"
    return $status
}

suite_format() {
    cargo fmt --all --check
}

suite_clippy() {
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

suite_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
}

suite_test() {
    cargo test --locked --workspace --lib --bins --tests --no-fail-fast \
        -- ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
}

# What the hot path costs, in instructions, of code that is built as it is released.
suite_cost() {
    need valgrind valgrind && need objdump binutils || return "$MISSING"
    cargo test --locked -p doorbell-blockfs --test cost -- --nocapture
}

# Another `cfg` builds everything anew: in a folder of its own it leaves other builds alone.
suite_loom() {
    RUSTFLAGS="--cfg loom" cargo test --locked -p doorbell-blockfs --lib \
        --target-dir "$TARGET/loom" grace::model
}

# The campaign, then the same on a filesystem with one bug at a time, which is built apart.
# The same states each time, so that a change answers for what it breaks; nightly runs try others.
suite_crash() {
    local states=1000000 seed=${DOORBELL_SEED:-1}
    [[ $NIGHTLY == 0 ]] || states=50000000 seed=$RANDOM$RANDOM
    cargo run --locked -q --release -p doorbell-crash -- --states "$states" --seed "$seed" \
        ${ARGUMENTS[@]+"${ARGUMENTS[@]}"} || return
    [[ ${#ARGUMENTS[@]} == 0 ]] || return 0
    cargo run --locked -q --release -p doorbell-crash --features seeded-bugs \
        --target-dir "$TARGET/seeded-bugs" -- --bugs --seed "$seed"
}

# Other operations each time: a failure says with which seed it comes again.
suite_fsx() {
    local operations=1000000
    [[ $NIGHTLY == 0 ]] || operations=30000000
    cargo run --locked -q --release -p doorbell-crash -- --fsx "$operations" \
        ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
}

# Damaged images, in processes that may take so much memory and time for each. What is found lies in
# $TARGET/fuzz/findings; `tests/run fuzz -- FILE` tries it again.
suite_fuzz() {
    need g++ g++ || return "$MISSING"
    if ! cargo fuzz --version >/dev/null 2>&1; then
        echo "installing cargo-fuzz" >&2
        cargo install --quiet --locked cargo-fuzz || return "$MISSING"
    fi
    local seconds=60 corpus=$TARGET/fuzz/corpus findings=$TARGET/fuzz/findings
    [[ $NIGHTLY == 0 ]] || seconds=3600
    mkdir -p "$corpus" "$findings"
    [[ ${#ARGUMENTS[@]} == 0 ]] || corpus=
    # libFuzzer's instrumentation is not in stable Rust's interface yet.
    RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir tests/fuzz --target-dir "$TARGET/fuzz" image \
        ${corpus:+"$corpus"} ${ARGUMENTS[@]+"${ARGUMENTS[@]}"} -- -rss_limit_mb=512 -timeout=10 \
        -max_len=256 -max_total_time="$seconds" -artifact_prefix="$findings/" -print_final_stats=1
}

suite_doctest() {
    cargo test --locked --workspace --doc --no-fail-fast
}

# The guest, once it is here: with what it is to do.
hil_host() {
    if [[ $(uname -m) != x86_64 ]]; then
        echo "missing: an x86_64 machine, whose programs the guest can run"
        return "$MISSING"
    fi
    need xz xz-utils && need_qemu && need_kernel || return "$MISSING"
    cargo run --locked -q --profile test -p doorbell-hil --bin hil-host -- --work "$TARGET/hil" "$@"
}

suite_hil() {
    hil_host ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
}

suite_cuts() {
    local cuts=12
    [[ $NIGHTLY == 0 ]] || cuts=200
    hil_host --cuts "$cuts" ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
}

# How many system calls the thread of nvme-perf that drives the controller makes for so many reads.
# (The software controller's own thread gives its processor up when it has nothing to do.)
count_syscalls() {
    local trace=$LOGS/strace.txt
    strace -f --decode-pids=comm -o "$trace" \
        "$TARGET/release/nvme-perf" emu:backing=null --iodepth 256 --number-ios "$1" >&2 || return
    grep -c '^[0-9]*<job 0> [a-z]' "$trace"
}

suite_syscalls() {
    need strace strace || return "$MISSING"
    cargo build --locked -q --release --bin nvme-perf || return
    local one two
    one=$(count_syscalls 1000000) && two=$(count_syscalls 2000000) || return
    echo "$one system calls for 1,000,000 reads, $two for 2,000,000"
    # A million reads more cost none; what is left is the kernel's scheduling of start and end.
    [[ $((two - one)) -le 20 ]]
}

# README's first command, and what scripts read from its JSON.
suite_readme() {
    need jq jq || return "$MISSING"
    local report=$LOGS/perf.json
    cargo run --locked --release --bin nvme-perf | tee "$LOGS/perf.txt"
    grep -q 'IOPS=.*BW=' "$LOGS/perf.txt" && grep -q '99.00th' "$LOGS/perf.txt" || return
    cargo run --locked -q --release --bin nvme-perf -- --runtime 1 --output-format json \
        >"$report" || return
    jq -e '.jobs[0].read | .iops > 0 and .clat_ns.percentile."99.000000" > 0' "$report" || return
    readme_copies
}

# README's volume in a file: what went in comes out the same.
readme_copies() {
    local bin=$TARGET/release folder=$LOGS/copies tree=/usr/share/doc status
    [[ -d $tree ]] || tree=$ROOT/docs
    cargo build --locked -q --release -p doorbell-blockfs-tools || return
    rm -rf "$folder" && mkdir "$folder" && cd "$folder" || return
    "$bin/mkfs-blockfs" emu:file=disk.img,size=4g &&
        "$bin/blockfs" cp -r "$tree" emu:file=disk.img:/doc &&
        "$bin/blockfs" cp -r emu:file=disk.img:/doc doc &&
        diff -r --no-dereference "$tree" doc &&
        "$bin/fsck-blockfs" -n emu:file=disk.img
    status=$?
    rm -rf "$folder"
    return $status
}
