#!/usr/bin/env bash
# Runs the tests of a core of mint that is a shell script, each by itself, so that one that fails ends no other.
#
# usage: mint.sh SCRIPT [ARGUMENT]...
#
# The script is read without its last line, which runs all tests. Prints a JSON object for each test, as mint
# does, whose name is that of the function.

set -u
script=$1
shift

# What the tests store, of the sizes that mint uses.
mkdir -p "$MINT_DATA_DIR"
while read -r name size; do
	[ -e "$MINT_DATA_DIR/$name" ] || head -c "$size" /dev/urandom >"$MINT_DATA_DIR/$name"
done <<'SIZES'
datafile-0-b 0
datafile-1-b 1
datafile-1-kB 1024
datafile-10-kB 10240
datafile-1-MB 1048576
datafile-5-MB 5242880
datafile-10-MB 10485760
datafile-11-MB 11534336
datafile-65-MB 68157440
SIZES

functions=$PWD/functions.sh
grep -vxE 'main "\$@"|__init__ "\$@"|_init "\$@" && main' "$script" >"$functions"
# shellcheck disable=SC1090
source "$functions"
set +u
case $(basename "$(dirname "$script")") in
awscli)
	# As its run.sh does.
	export AWS_ACCESS_KEY_ID=$ACCESS_KEY AWS_SECRET_ACCESS_KEY=$SECRET_KEY AWS_DEFAULT_REGION=$SERVER_REGION
	export BOTO_EXPERIMENTAL__NO_EMPTY_CONTINUE=true
	_init "$@"
	;;
s3cmd)
	__init__ "$@"
	(setup)
	;;
esac
set +eE

# The names in the function that runs all tests, in its order; lines of comments are none.
tests=$(sed -nE '/^(function run_test|main)\(\)/,/^}/p' "$script" | grep -v '^[[:space:]]*#' | grep -oE '\btest_[A-Za-z0-9_]+')
for test in $tests; do
	said=$("$test" 2>&1)
	code=$?
	if [ $code -eq 0 ] && [[ $said != *'"status": "FAIL"'* ]]; then
		printf '{"name": "%s", "status": "PASS"}\n' "$test"
	else
		printf '%s' "$said" | python -c 'import json, sys
said = sys.stdin.read().strip()[-400:]
print(json.dumps({"name": sys.argv[1], "status": "FAIL", "message": f"exit code {sys.argv[2]}", "error": said}))' "$test" "$code"
	fi
done
