# What the tests need from the distribution: found if it is there, installed if this is Debian and root.
#
# Sourced by tests/run. A machine that has everything is never asked twice: no call to apt is made.

CACHE="$ROOT/tests/hil/.cache"
# The first QEMU whose NVMe and Intel IOMMU models do what the guest needs.
QEMU_NEEDED=8
KERNEL_SERIES=6.12

# Whether packages can be installed here.
can_install() {
    [[ $(id -u) == 0 ]] && command -v apt-get dpkg-deb >/dev/null && [[ -r /etc/debian_version ]]
}

# apt: runs apt-get without a question and without a word, unless it fails.
apt() {
    local log
    log=$(mktemp)
    if ! DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o Acquire::Retries=3 ${APT_EXTRA[@]+"${APT_EXTRA[@]}"} "$@" </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# Fetches the package lists, once a run.
apt_update() {
    [[ -n ${APT_UPDATED-} ]] || apt update || return
    APT_UPDATED=1
}

# need COMMAND PACKAGE...: makes sure that COMMAND exists.
need() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return
    if ! can_install; then
        echo "missing: $command (Debian: apt-get install $*)" >&2
        return 1
    fi
    echo "installing $*" >&2
    apt_update && apt install --no-install-recommends "$@" && command -v "$command" >/dev/null
}

# Adds this release's backports suite for the rest of this run, in a list of our own. The archive's
# address is the one that the machine's own configuration names for the release itself.
use_backports() {
    [[ -z ${BACKPORTS-} ]] || return 0
    local codename site signed
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # Reading all of the input keeps apt-get from dying of a broken pipe.
    site=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(CREATED_BY) $(COMPONENT)' |
        awk -v name="$codename" '$2 == name && $3 == "Packages" && !site { site = $1 }
                                 END { print site }')
    if [[ -z $site ]]; then
        echo "apt names no archive for $codename: cannot add its backports suite" >&2
        return 1
    fi
    signed=
    local ring=/usr/share/keyrings/debian-archive-keyring.gpg
    [[ ! -r $ring ]] || signed="[signed-by=$ring] "
    mkdir -p "$CACHE"
    {
        [[ ! -r /etc/apt/sources.list ]] || cat /etc/apt/sources.list
        echo
        echo "deb $signed$site $codename-backports main"
    } >"$CACHE/sources.list"
    APT_EXTRA=(-o "Dir::Etc::SourceList=$CACHE/sources.list")
    BACKPORTS="$codename-backports"
    unset APT_UPDATED
    apt_update
}

# The major version of the QEMU that is installed; 0 if there is none.
qemu_major() {
    local version
    version=$(qemu-system-x86_64 --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p')
    echo "${version:-0}"
}

# Makes sure of a QEMU that is new enough.
need_qemu() {
    [[ $(qemu_major) -lt $QEMU_NEEDED ]] || return 0
    if ! can_install; then
        echo "missing: qemu-system-x86_64 $QEMU_NEEDED or newer (found: $(qemu_major))" >&2
        return 1
    fi
    apt_update || return
    local offered
    offered=$(apt-cache policy qemu-system-x86 |
        sed -n 's/^ *Candidate: \([0-9]*:\)\?\([0-9]*\).*/\2/p')
    if [[ ${offered:-0} -ge $QEMU_NEEDED ]]; then
        echo "installing qemu-system-x86" >&2
        apt install --no-install-recommends qemu-system-x86 || return
    else
        use_backports || return
        echo "installing qemu-system-x86 from $BACKPORTS" >&2
        apt install --no-install-recommends -t "$BACKPORTS" qemu-system-x86 || return
    fi
    [[ $(qemu_major) -ge $QEMU_NEEDED ]]
}

# Whether a kernel's modules can be found from its image: both come from one package.
has_modules() {
    local version=${1##*/vmlinuz-} root
    root=$(dirname "$(dirname "$1")")
    [[ -d $root/lib/modules/$version || -d $root/usr/lib/modules/$version ]]
}

# The newest kernel image in a boot directory whose modules are there, if any.
newest_kernel() {
    local image
    for image in $(ls "$1"/vmlinuz-* 2>/dev/null | sort -rV); do
        if has_modules "$image"; then
            echo "$image"
            return
        fi
    done
}

# The newest real package of a kernel series in the lists; nothing if there is none. Meta packages
# and unsigned twins do not match.
kernel_package() {
    apt-cache ${APT_EXTRA[@]+"${APT_EXTRA[@]}"} pkgnames linux-image- |
        grep -E "^linux-image-${1//./\\.}[0-9.+a-z~-]*-cloud-amd64\$" | sort -V | tail -n 1
}

# Sets DOORBELL_GUEST_KERNEL: the one given, the one in the cache, one from Debian's archive, or one
# of this machine.
need_kernel() {
    if [[ -n ${DOORBELL_GUEST_KERNEL-} ]]; then
        has_modules "$DOORBELL_GUEST_KERNEL" && return
        echo "DOORBELL_GUEST_KERNEL=$DOORBELL_GUEST_KERNEL: no /boot/vmlinuz-VERSION with" \
            "../lib/modules/VERSION beside it" >&2
        return 1
    fi
    DOORBELL_GUEST_KERNEL=$(newest_kernel "$CACHE/kernel/boot")
    if [[ -z $DOORBELL_GUEST_KERNEL ]] && can_install; then
        fetch_kernel || return
        DOORBELL_GUEST_KERNEL=$(newest_kernel "$CACHE/kernel/boot")
    fi
    [[ -n $DOORBELL_GUEST_KERNEL ]] || DOORBELL_GUEST_KERNEL=$(newest_kernel /boot)
    export DOORBELL_GUEST_KERNEL
    if [[ -z $DOORBELL_GUEST_KERNEL ]]; then
        echo "missing: a kernel for the guest; set DOORBELL_GUEST_KERNEL=/boot/vmlinuz-VERSION" >&2
        return 1
    fi
}

# Unpacks Debian's kernel for virtual machines into the cache, without installing it.
fetch_kernel() {
    local package work
    apt_update || return
    package=$(kernel_package "$KERNEL_SERIES")
    if [[ -z $package ]]; then
        use_backports && package=$(kernel_package "$KERNEL_SERIES")
    fi
    [[ -n $package ]] || package=$(kernel_package '[0-9]')
    if [[ -z $package ]]; then
        echo "apt offers no linux-image-VERSION-cloud-amd64" >&2
        return 1
    fi
    echo "fetching $package for the guest" >&2
    work=$(mktemp -d)
    # apt's own user may not enter our directories; it says so and downloads as root instead.
    (cd "$work" && apt download "$package" && dpkg-deb -x ./*.deb "$work/root") || return
    mkdir -p "$CACHE"
    rm -rf "$CACHE/kernel"
    mv "$work/root" "$CACHE/kernel"
    rm -rf "$work"
}
