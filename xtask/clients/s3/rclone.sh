#!/usr/bin/env bash
# rclone against an S3 endpoint. Prints `ok NAME` or `FAILED NAME` and the output of the command.
#
# Environment: ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_CA_BUNDLE for HTTPS; `rclone` is in PATH.
# Works in the current directory.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# The settings of the guide.
export RCLONE_CONFIG="$PWD/rclone.conf" RCLONE_CACHE_DIR="$PWD/cache"
cat > rclone.conf << END
[fb]
type = s3
provider = Other
endpoint = $ENDPOINT
region = forebay
access_key_id = $AWS_ACCESS_KEY_ID
secret_access_key = $AWS_SECRET_ACCESS_KEY
END
if [ -n "${AWS_CA_BUNDLE:-}" ]; then export RCLONE_CA_CERT="$AWS_CA_BUNDLE"; fi
# A fault is reported, not repeated.
export RCLONE_RETRIES=1 RCLONE_LOW_LEVEL_RETRIES=1

works mkdir rclone mkdir fb:bucket
works "mkdir: the bucket exists" rclone mkdir fb:bucket
equals "lsf: buckets" bucket/ rclone lsf fb:

mkdir -p tree/x/y
for n in 1 2 3; do
    printf '%s' "$n" > "tree/x/$n"
    printf '%s' "$n" > "tree/x/y/na me $n+&%ü"
done
: > tree/empty
touch -d 2001-02-03T04:05:06.789Z tree/x/1
works "copy: a directory" rclone copy tree fb:bucket/tree
equals "lsf: recursive" "$(cd tree && find . -type f -printf '%P\n' | LC_ALL=C sort)" \
    sh -c 'rclone lsf -R --files-only fb:bucket/tree | LC_ALL=C sort'
equals "lsf: --fast-list" "$(cd tree && find . -type f -printf '%P\n' | LC_ALL=C sort)" \
    sh -c 'rclone lsf -R --files-only --fast-list fb:bucket/tree | LC_ALL=C sort'
equals "ls: a size" "        1 x/1" rclone ls --include /x/1 fb:bucket/tree
prints "lsl: the time of the file" "2001-02-03 04:05:06.789000000 x/1" env TZ=UTC rclone lsl fb:bucket/tree
prints "size" "Total objects: 7" rclone size fb:bucket/tree
works "check: by checksum" rclone check tree fb:bucket/tree
works "check: by content" rclone check --download tree fb:bucket/tree
prints "copy: nothing to do" "0 B / 0 B" rclone copy -v --stats-one-line tree fb:bucket/tree
equals "cat" 2 rclone cat "fb:bucket/tree/x/y/na me 2+&%ü"
refuses "deletefile: no such object" "not found" rclone deletefile fb:bucket/none
refuses "cat: no such bucket" "not found" rclone cat fb:none-such/none

rm tree/x/1
printf 'changed' > tree/x/2
printf 'new' > tree/x/4
refuses "check: what differs" "3 differences found" rclone check tree fb:bucket/tree
works "sync: with deletion" rclone sync tree fb:bucket/tree
equals "lsf: what is gone, and what is new" "2 3 4 y/" sh -c 'rclone lsf fb:bucket/tree/x | xargs'
equals "cat: what was changed" changed rclone cat fb:bucket/tree/x/2
works "sync: back" rclone sync fb:bucket/tree returned
works "the directories are equal" diff -r tree returned

head -c 33000000 /dev/urandom > large
parts="--s3-upload-cutoff 5Mi --s3-chunk-size 5Mi"
works "copyto: in parts" rclone copyto $parts large fb:bucket/large
works "check: a file in parts" rclone check --include /large . fb:bucket
works "copyto: back, by several requests" rclone copyto --multi-thread-cutoff 5Mi --multi-thread-streams 4 fb:bucket/large came
works "what came back is what was sent" cmp large came
equals "cat: a range" "$(tail -c +10000001 large | head -c 1000 | md5sum)" \
    sh -c 'rclone cat --offset 10000000 --count 1000 fb:bucket/large | md5sum'
equals "cat: the end" "$(tail -c 7 large | md5sum)" sh -c 'rclone cat --tail 7 fb:bucket/large | md5sum'
prints "copyto: on the server" "server-side copy" rclone copyto -v fb:bucket/large fb:bucket/copy
equals "the copy has the same bytes" "$(md5sum < large)" sh -c 'rclone cat fb:bucket/copy | md5sum'
prints "copyto: on the server, in parts" "server-side copy" rclone copyto -v --s3-copy-cutoff 5Mi $parts fb:bucket/large fb:bucket/parts
equals "the copy in parts has the same bytes" "$(md5sum < large)" sh -c 'rclone cat fb:bucket/parts | md5sum'
works "mkdir: another bucket" rclone mkdir fb:other
prints "sync: between buckets" "server-side copy" rclone sync -v fb:bucket/tree fb:other/tree
works "check: between buckets" rclone check fb:bucket/tree fb:other/tree
works "moveto" rclone moveto fb:bucket/copy fb:bucket/moved
equals "moveto: the old name" "" rclone lsf --include /copy fb:bucket
equals "moveto: the new name" "$(md5sum < large)" sh -c 'rclone cat fb:bucket/moved | md5sum'
works "rcat" sh -c 'printf "from a pipe" | rclone rcat fb:bucket/piped'
equals "cat: what was piped" "from a pipe" rclone cat fb:bucket/piped
works "rcat: more than a part" sh -c "rclone rcat $parts --streaming-upload-cutoff 1Mi fb:bucket/streamed < large"
equals "cat: what was streamed" "$(md5sum < large)" sh -c 'rclone cat fb:bucket/streamed | md5sum'
equals "md5sum" "$(printf 'from a pipe' | md5sum | cut -c -32)  piped" rclone md5sum --include /piped fb:bucket
works "touch: a time" rclone touch -t 2002-03-04T05:06:07 fb:bucket/piped
prints "lsl: the time that was set" "2002-03-04 05:06:07" env TZ=UTC rclone lsl --include /piped fb:bucket
works "copyto: with metadata" rclone copyto -M --metadata-set artist=X --metadata-set cache-control=max-age=90 tree/x/4 fb:bucket/described
prints "lsjson: metadata" '"artist": "X"' rclone lsjson -M --stat fb:bucket/described
prints "lsjson: headers" '"cache-control": "max-age=90"' rclone lsjson -M --stat fb:bucket/described

capture rclone link --expire 1m fb:bucket/piped
equals "link" "from a pipe" curl -sSf ${AWS_CA_BUNDLE:+--cacert "$AWS_CA_BUNDLE"} "$said"

prints "backend versioning" Enabled rclone backend versioning fb:bucket Enabled
works "rcat: over an object" sh -c 'printf second | rclone rcat fb:bucket/piped'
works "deletefile" rclone deletefile fb:bucket/piped
equals "lsf: a deleted object" "" rclone lsf --include /piped fb:bucket
equals "lsf: versions" 2 sh -c 'rclone lsf --s3-versions --include "/piped*" fb:bucket | wc -l'
capture sh -c 'rclone lsf --s3-versions --include "/piped*" fb:bucket | sort | tail -n 1'
equals "cat: a version" second rclone cat --s3-versions "fb:bucket/$said"
works "backend cleanup-hidden" rclone backend cleanup-hidden fb:bucket
equals "lsf: no versions" "" rclone lsf --s3-versions --include "/piped*" fb:bucket

works "delete: by a pattern" rclone delete --include '/x/y/**' fb:bucket/tree
equals "lsf: what was not deleted" "empty x/" sh -c 'rclone lsf fb:bucket/tree | xargs'
refuses "rmdir: a bucket with objects" "BucketNotEmpty" rclone rmdir fb:other
works purge rclone purge fb:other
works "purge: a bucket with versions" rclone purge fb:bucket
equals "lsf: no buckets" "" rclone lsf fb:
exit 0
