#!/usr/bin/env bash
# mc, MinIO's client, against an S3 endpoint. Prints `ok NAME` or `FAILED NAME` and the output of the command.
#
# Environment: MC (the program), ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_CA_BUNDLE for HTTPS.
# Works in the current directory.
set -u

mkdir -p mc/certs/CAs
if [ -n "${AWS_CA_BUNDLE:-}" ]; then cp "$AWS_CA_BUNDLE" mc/certs/CAs/; fi

mc() { "$MC" --config-dir mc --quiet --no-color "$@"; }

. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

works alias mc alias set fb "$ENDPOINT" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY"
works mb mc mb fb/bucket
works "mb: the bucket exists" mc mb --ignore-existing fb/bucket
prints "ls: buckets" bucket mc ls fb

printf 'hello\n' > hello
works "cp: a file" mc cp hello fb/bucket/a/hello
prints cat hello mc cat fb/bucket/a/hello
prints "cat: from an offset" llo mc cat --offset 2 fb/bucket/a/hello
prints "head: a line" hello mc head --lines 1 fb/bucket/a/hello
prints "stat: an object" b1946ac92492d2347c6235b4d2611184 mc stat fb/bucket/a/hello
refuses "stat: no such object" "does not exist" mc stat fb/bucket/none
refuses "cat: no such bucket" "does not exist" mc cat fb/none/none

head -c 80000000 /dev/urandom > large
works "cp: in parts" mc cp large fb/bucket/large
works "cp: back" mc cp fb/bucket/large returned
works "what came back is what was sent" cmp large returned
works "cp: on the server" mc cp fb/bucket/large fb/bucket/copy
works "get: a copy" mc get fb/bucket/copy copied
works "the copy has the same bytes" cmp large copied
works "put" mc put hello fb/bucket/put
works "mv" mc mv fb/bucket/put fb/bucket/moved
refuses "mv: the old name" "does not exist" mc stat fb/bucket/put
works "cp: with headers and metadata" mc cp --attr "Cache-Control=max-age=90;Artist=X" hello fb/bucket/described
prints "stat: headers" "max-age=90" mc stat fb/bucket/described
prints "stat: metadata" "Artist: X" mc stat fb/bucket/described
said=$(printf 'from a pipe\n' | mc pipe fb/bucket/piped 2>&1)
report pipe $? "$said"
prints "cat: what was piped" "from a pipe" mc cat fb/bucket/piped

mkdir -p tree/x/y
for n in 1 2 3; do
    printf '%s' "$n" > "tree/x/$n"
    printf '%s' "$n" > "tree/x/y/na me $n+&%ü"
done
works mirror mc mirror tree fb/bucket/tree
said=$(mc diff tree fb/bucket/tree 2>&1)
[ -z "$said" ]
report "diff: nothing" $? "$said"
rm tree/x/1
printf 'new' > tree/x/4
prints "diff: two" tree/x/4 mc diff tree fb/bucket/tree
works "mirror: overwrite and remove" mc mirror --overwrite --remove tree fb/bucket/tree
works "mirror: back" mc mirror fb/bucket/tree mirrored
works "the directories are equal" diff -r tree mirrored
prints "find" "fb/bucket/tree/x/y/na me 3+&%ü" mc find fb/bucket --name '*me 3*'
prints "ls: recursive" "x/y/na me 2+&%ü" mc ls --recursive fb/bucket/tree
prints tree y mc tree fb/bucket/tree
prints du "6 objects" mc du fb/bucket/tree

works "tag set" mc tag set fb/bucket/piped "stage=final&team=web"
prints "tag list" "final" mc tag list fb/bucket/piped
works "tag remove" mc tag remove fb/bucket/piped

works "version enable" mc version enable fb/bucket
printf 'second\n' > second
works "cp: over an object" mc cp second fb/bucket/a/hello
prints "ls: versions" "v2 PUT" mc ls --versions fb/bucket/a/hello
works "rm: an object with versions" mc rm fb/bucket/a/hello
prints "ls: a delete marker" "v3 DEL" mc ls --versions fb/bucket/a/hello
works undo mc undo fb/bucket/a/hello
prints "cat: what was restored" second mc cat fb/bucket/a/hello

url=$(mc share download --json fb/bucket/piped | sed -n 's/.*"share":"\([^"]*\)".*/\1/p' | sed 's/\\u0026/\&/g')
prints "share: a download" "from a pipe" curl -sSf ${AWS_CA_BUNDLE:+--cacert "$AWS_CA_BUNDLE"} "$url"

refuses "rb: a bucket with objects" "not empty" mc rb fb/bucket
works "rm: every version" mc rm --recursive --force --versions fb/bucket/tree
works "rb: with everything in it" mc rb --force fb/bucket
refuses "ls: the bucket is gone" "does not exist" mc ls fb/bucket
exit 0
