# shellcheck shell=sh disable=SC2154
# Bare Debian machines in folders, for the scripts that try something on them; read by those with `.`. They set
# `place` (a folder for logs), `bare` (the root of the machine) and `base` (a tar of it as debootstrap made it), and
# call all this in a mount namespace of its own.

fail() {
    echo "${0##*/}: $1" >&2
    exit 1
}

# This machine's own sources of packages, where it is of that release.
is_of_release() { grep -q "^VERSION_CODENAME=$1\$" /etc/os-release; }

make_base() { # RELEASE PACKAGES
    rm -rf --one-file-system "$bare"
    mirror=
    # shellcheck disable=SC2016 # apt's own variables
    ! is_of_release "$1" || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $1" | head -n 1)
    echo "${0##*/}: making a bare Debian ($1)"
    # shellcheck disable=SC2086 # no mirror is no argument
    debootstrap --variant=minbase --include="$2" "$1" "$bare" $mirror >"$place/base.log" 2>&1 ||
        fail "debootstrap failed: $place/base.log"
    tar -C "$bare" -cf "$base.part" . && mv "$base.part" "$base"
}

# How this machine reaches its sources of packages: apt's and pip's settings, proxies, certificates, names of
# hosts.
copy_settings() { # RELEASE
    cp -L /etc/resolv.conf /etc/hosts "$bare/etc/"
    apt-config dump Acquire >"$bare/etc/apt/apt.conf.d/50sources"
    for scheme in http https; do
        eval "proxy=\${${scheme}_proxy:-}"
        [ -z "$proxy" ] || echo "Acquire::$scheme::Proxy \"$proxy\";" >>"$bare/etc/apt/apt.conf.d/50sources"
    done
    if is_of_release "$1"; then
        rm -f "$bare/etc/apt/sources.list"
        cp -rL /etc/apt/sources.list* /etc/apt/keyrings "$bare/etc/apt/" 2>/dev/null || true
        cp -L /usr/share/keyrings/* "$bare/usr/share/keyrings/"
    fi
    for certificates in /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e $certificates ] || (cd / && cp -rL --parents "${certificates#/}" "$bare/")
    done
    [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$bare/etc/"
    for settings in "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        [ ! -e "$settings" ] || cat "$settings" >>"$bare/etc/user-pip.conf"
    done
}

# Folders of packages on this machine that pip's settings name; what they link to lies beside them.
bind_folders() {
    { cat "$bare/etc/pip.conf" "$bare/etc/user-pip.conf" 2>/dev/null; env | grep '^PIP_'; } | grep -oE '/[^/ ][^ ]*' | while read -r folder; do
        folder=${folder#//}
        [ -d "$folder" ] || continue
        folder=$(dirname "$folder")
        mkdir -p "$bare$folder"
        mountpoint -q "$bare$folder" || mount --bind -o ro "$folder" "$bare$folder"
    done
}

# The last commit, for `git clone` on the machine; deltas are for who fetches it from afar.
bring_commit() { git -c safe.directory='*' -c pack.window=0 bundle create --quiet "$bare/trainyard.bundle" HEAD; }

# The machine of $base.
prepare() { # RELEASE
    rm -rf --one-file-system "$bare"
    mkdir "$bare"
    tar -C "$bare" -xf "$base"
    chmod 755 "$bare"
    copy_settings "$1"
    mount --bind "$bare" "$bare" # a root that is a mount, as that of any machine: `unshare -m` wants it so
    mount -t proc proc "$bare/proc"
    mount --rbind /sys "$bare/sys"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$bare/dev/pts" # its other devices are its own
    mount -t tmpfs -o mode=1777 tmpfs "$bare/dev/shm"
    bind_folders
}

# On the machine, whose root is that of a mount namespace: in a chroot nobody may make user namespaces.
enter() { # COMMAND...
    # shellcheck disable=SC2016 # the inner shell's
    unshare --mount sh -euc 'cd "$1"; shift; mkdir -p .outside; pivot_root . .outside; cd /; umount -l .outside; exec "$@"' sh "$bare" "$@"
}

# What mounts does so in namespaces of its own, where all ends with their first process.
inside() { unshare --mount --pid --fork --kill-child "$0" --inside "$@"; }

# Only root can make a machine, and one script at a time in a place.
take_place() {
    [ "$(id -u)" = 0 ] || fail "only root can make a machine: use sudo"
    command -v debootstrap >/dev/null || fail "there is no debootstrap: apt-get install debootstrap"
    mkdir -p "$place"
    exec 9>"$place/lock"
    flock -n 9 || fail "another one is at work in $place"
    trap 'rm -rf --one-file-system "$bare"' EXIT
    trap 'exit 130' INT TERM
}
