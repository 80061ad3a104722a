#!/usr/bin/env bash
# aws-cli against an S3 endpoint. Prints `ok NAME` or `FAILED NAME` and the output of the command.
#
# Environment: ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_CA_BUNDLE for HTTPS; `aws` is in PATH.
# Works in the current directory.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# The settings of the guide, and none of the user's.
export AWS_ENDPOINT_URL="$ENDPOINT" AWS_DEFAULT_REGION=forebay HOME="$PWD" AWS_MAX_ATTEMPTS=1
unset AWS_REGION AWS_PROFILE AWS_SESSION_TOKEN AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
s3api() { # RESULT COMMAND...: prints the field of the result.
    local query=$1
    shift
    aws s3api --output text --query "$query" "$@"
}

prints "s3 mb" "make_bucket: bucket" aws s3 mb s3://bucket
refuses "s3 mb: the bucket exists" BucketAlreadyOwnedByYou aws s3 mb s3://bucket

mkdir -p tree/x/y
for n in 1 2 3; do
    printf '%s' "$n" > "tree/x/$n"
    printf '%s' "$n" > "tree/x/y/na me $n+&%ü"
done
head -c 33000000 /dev/urandom > large
works "s3 cp: in parts" aws s3 cp --no-progress large s3://bucket/large
works "s3 cp: back" aws s3 cp --no-progress s3://bucket/large came
works "what came back is what was sent" cmp large came
prints "s3 cp: on the server" "copy: s3://bucket/large to s3://bucket/copy" aws s3 cp --no-progress s3://bucket/large s3://bucket/copy
equals "s3 cp: to a pipe" "$(md5sum < large)" sh -c 'aws s3 cp s3://bucket/copy - | md5sum'
works "s3 cp: from a pipe" sh -c 'printf "from a pipe" | aws s3 cp - s3://bucket/piped --content-type text/x-piped --metadata artist=X'
refuses "s3 cp: no such object" 404 aws s3 cp s3://bucket/none none
works "s3 mv" aws s3 mv --no-progress s3://bucket/copy s3://bucket/moved

works "s3 sync" aws s3 sync --no-progress tree s3://bucket/tree
equals "s3 sync: nothing to do" "" aws s3 sync --no-progress tree s3://bucket/tree
rm tree/x/1
printf 'changed' > tree/x/2
printf 'new' > tree/x/4
prints "s3 sync: with deletion" "delete: s3://bucket/tree/x/1" aws s3 sync --no-progress --delete tree s3://bucket/tree
works "s3 sync: back" aws s3 sync --no-progress s3://bucket/tree returned
works "the directories are equal" diff -r tree returned
equals "s3 ls" "y/ 2 3 4" sh -c 'aws s3 ls s3://bucket/tree/x/ | sed "s/.* //" | xargs'
equals "s3 ls: recursive" "$(find tree -type f | LC_ALL=C sort)" \
    sh -c 'aws s3 ls --recursive s3://bucket/tree/ | sed "s/^.\{31\}//" | LC_ALL=C sort'

capture aws s3 presign --expires-in 60 s3://bucket/piped
equals "s3 presign" "from a pipe" curl -sSf ${AWS_CA_BUNDLE:+--cacert "$AWS_CA_BUNDLE"} "$said"

equals "s3api head-object" "11 text/x-piped X" sh -c \
    'aws s3api head-object --bucket bucket --key piped --output text --query "[ContentLength, ContentType, Metadata.artist]" | xargs'
refuses "s3api head-object: no such object" 404 aws s3api head-object --bucket bucket --key none
printf 'one' > one
printf 'two' > two
etag='"f97c5d29941bfb1b2fdab0874906ab82"'
equals "s3api put-object: if there is none" "$etag" s3api ETag put-object --bucket bucket --key once --body one --if-none-match '*'
refuses "s3api put-object: there is one" PreconditionFailed aws s3api put-object --bucket bucket --key once --body two --if-none-match '*'
refuses "s3api put-object: it is another" PreconditionFailed aws s3api put-object --bucket bucket --key once --body two --if-match '"00000000000000000000000000000000"'
works "s3api put-object: it is this one" aws s3api put-object --bucket bucket --key once --body two --if-match "$etag"
equals "what was put" two aws s3 cp s3://bucket/once -
works "s3api put-object-tagging" aws s3api put-object-tagging --bucket bucket --key once --tagging 'TagSet=[{Key=stage,Value=final}]'
equals "s3api get-object-tagging" "stage final" sh -c \
    'aws s3api get-object-tagging --bucket bucket --key once --output text --query "TagSet[].[Key, Value]" | xargs'
equals "s3api get-object: a range" wo sh -c 'aws s3api get-object --bucket bucket --key once --range bytes=1-2 ranged > /dev/null && cat ranged'

# What follows moves no bytes in other ways than the above, and each call starts a Python.
if [ -n "${AWS_CA_BUNDLE:-}" ]; then exit 0; fi

works "s3api put-bucket-versioning" aws s3api put-bucket-versioning --bucket bucket --versioning-configuration Status=Enabled
capture s3api VersionId put-object --bucket bucket --key once --body one
version=$said
works "s3 rm" aws s3 rm s3://bucket/once
equals "s3api list-object-versions" "$version 1 True" sh -c \
    'aws s3api list-object-versions --bucket bucket --prefix once --output text --query "[Versions[0].VersionId, length(DeleteMarkers), DeleteMarkers[0].IsLatest]" | xargs'
equals "s3api get-object: a version" one sh -c \
    "aws s3api get-object --bucket bucket --key once --version-id '$version' kept > /dev/null && cat kept"

refuses "s3 rb: a bucket with objects" BucketNotEmpty aws s3 rb s3://bucket
prints "s3 mb: another bucket" "make_bucket: other" aws s3 mb s3://other
works "s3 sync: between buckets" aws s3 sync --no-progress s3://bucket/tree s3://other
equals "s3 cp: what was copied" changed aws s3 cp s3://other/x/2 -
works "s3 rm: recursive" aws s3 rm --recursive s3://other/x/y
equals "s3 ls: what is left" "2 3 4" sh -c 'aws s3 ls --recursive s3://other | sed "s/.*x\///" | xargs'
works "s3 rb: with everything in it" aws s3 rb --force s3://other
equals "s3 ls: buckets" bucket sh -c 'aws s3 ls | sed "s/.* //"'
exit 0
