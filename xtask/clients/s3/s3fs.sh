#!/usr/bin/env bash
# A bucket mounted by s3fs. Prints `ok NAME` or `FAILED NAME` and the output of the command; `skipped REASON`, if
# this system does not permit to mount.
#
# Environment: ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_CA_BUNDLE for HTTPS.
# Works in the current directory.
set -u

if [ ! -c /dev/fuse ]; then
    echo "skipped there is no /dev/fuse"
    exit 0
fi
if ! said=$(curl -sSf -X PUT --aws-sigv4 aws:amz:forebay:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" ${AWS_CA_BUNDLE:+--cacert "$AWS_CA_BUNDLE"} "$ENDPOINT/mounted" 2>&1); then
    printf 'FAILED create a bucket\n%s\n' "$said"
    exit 0
fi
umask 077
printf '%s:%s\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" > password
mkdir -p mnt
trap 'umount mnt 2> /dev/null || fusermount -u mnt 2> /dev/null' EXIT
if [ -n "${AWS_CA_BUNDLE:-}" ]; then export CURL_CA_BUNDLE="$AWS_CA_BUNDLE"; fi
mount_bucket() {
    s3fs mounted mnt -o passwd_file=password,url="$ENDPOINT",use_path_request_style,endpoint=forebay
}
if ! said=$(mount_bucket 2>&1); then
    case "$said" in
    *"not permitted"* | *"ermission denied"* | *"No such device"*) echo "skipped $said" ;;
    *) printf 'FAILED mount\n%s\n' "$said" ;;
    esac
    exit 0
fi
echo "ok mount"

works() { # NAME COMMAND...
    local name=$1 said
    shift
    if said=$("$@" 2>&1 < /dev/null); then echo "ok $name"; else printf 'FAILED %s\n%s\n' "$name" "$said"; fi
}
has() { # FILE TEXT: the file has exactly this text.
    [ "$(cat "$1")" = "$2" ]
}
sh_() { sh -c "$1"; }

works "a file is written" sh_ "printf one > mnt/file"
works "a file is read" has mnt/file one
works "a file is appended to" sh_ "printf ' two' >> mnt/file"
works "what was appended is read" has mnt/file "one two"
works "a file is shortened" truncate -s 2 mnt/file
works "what is left is read" has mnt/file on
head -c 60000000 /dev/urandom > large
works "a directory is made" mkdir mnt/directory
works "a large file is written in parts" cp large mnt/directory/large
works "a large file is read" cmp large mnt/directory/large
works "a file is renamed" mv mnt/directory/large mnt/directory/moved
works "a directory is renamed" mv mnt/directory mnt/other
works "what was renamed is read" cmp large mnt/other/moved
printf 'XYZ' > patch
works "bytes in the middle are written" dd if=patch of=mnt/other/moved bs=1 seek=1000 conv=notrunc status=none
dd if=patch of=large bs=1 seek=1000 conv=notrunc status=none
works "what was written is read" cmp large mnt/other/moved
works "a mode is changed" chmod 640 mnt/file
works "a mode is kept" sh_ "[ \$(stat -c %a mnt/file) = 640 ]"
works "a time is set" touch -d 2001-02-03T04:05:06Z mnt/file
works "a time is kept" sh_ "[ \$(stat -c %Y mnt/file) = 981173106 ]"
works "a link is made" ln -s file mnt/link
works "a link is followed" has mnt/link on
works "a name with other characters" sh_ "printf x > 'mnt/na me+&%ü' && ls mnt | grep -qF 'na me+&%ü'"
works "a directory is listed" sh_ "[ \"\$(ls mnt/other)\" = moved ]"
works "a directory with files is not removed" sh_ "! rmdir mnt/other"
works "a directory is removed with its files" rm -r mnt/other
works "it is gone" sh_ "[ ! -e mnt/other ]"
umount mnt || fusermount -u mnt
works "mount again" mount_bucket
works "a file is read after it was mounted again" has mnt/file on
exit 0
