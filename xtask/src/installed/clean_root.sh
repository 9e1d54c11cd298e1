#!/bin/sh
# clean_root.sh DIR PACKAGE...: makes DIR the root of a Debian that has these packages and nothing else, of this machine's
# own files. Run by root. The packages are installed here; what their scripts have made beside their files is made anew.
set -e
umask 022

root=$(realpath "$1")
shift
mkdir -p "$root/usr"
files=$root/files

# Those of a merged /usr belong to no package.
for folder in bin sbin lib lib32 lib64 libx32 libo32; do
    if [ -L "/$folder" ]; then
        mkdir -p "$root/usr/$folder"
        ln -s "usr/$folder" "$root/$folder"
    fi
done
# Files of packages may have been left out here, as documentation is in images of containers.
dpkg-query --listfiles "$@" | grep '^/' | sort -u | while read -r path; do
    if [ -e "$path" ] || [ -L "$path" ]; then
        case $path in
            /bin | /sbin | /lib | /lib32 | /lib64 | /libx32 | /libo32) ;;
            *) printf '%s\n' "${path#/}" ;;
        esac
    fi
done > "$files"
tar --create --no-recursion --directory / --files-from "$files" |
    tar --extract --keep-directory-symlink --directory "$root"
rm "$files"

mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/dev" "$root/etc/pam.d"
mkdir -p -m 1777 "$root/tmp" "$root/run"
chmod 1777 "$root/tmp" "$root/run"
cp -a /var/lib/dpkg/info/format "$root/var/lib/dpkg/info/"
for package; do
    for file in "/var/lib/dpkg/info/$package".* "/var/lib/dpkg/info/$package":*; do
        if [ -e "$file" ]; then cp -a "$file" "$root/var/lib/dpkg/info/"; fi
    done
done
dpkg-query --status "$@" > "$root/var/lib/dpkg/status"

cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
cp -a /etc/pam.d/common-* "$root/etc/pam.d/"
chroot "$root" pwconv
chroot "$root" grpconv
# Where there are no devices, as in some containers, an empty file does for scripts.
mknod -m 666 "$root/dev/null" c 1 3 2> "$root/tmp/mknod" && : 2> "$root/tmp/mknod" < "$root/dev/null" || {
    rm -f "$root/dev/null"
    touch "$root/dev/null"
    chmod 666 "$root/dev/null"
}
