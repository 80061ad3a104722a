# Checks of a command, for the scripts beside this file. Each prints `ok NAME`, or `FAILED NAME` and the output.

report() { # NAME STATUS OUTPUT
    if [ "$2" = 0 ]; then echo "ok $1"; else printf 'FAILED %s\n%s\n' "$1" "$3"; fi
}

capture() { # COMMAND...
    said=$("$@" 2>&1 < /dev/null)
    status=$?
}

# The command succeeds.
works() { # NAME COMMAND...
    local name=$1
    shift
    capture "$@"
    report "$name" "$status" "$said"
}

# The command succeeds, and what it prints contains the text.
prints() { # NAME TEXT COMMAND...
    local name=$1 text=$2
    shift 2
    capture "$@"
    [[ "$status" = 0 && "$said" == *"$text"* ]]
    report "$name" $? "$said"
}

# The command succeeds, and prints exactly the text.
equals() { # NAME TEXT COMMAND...
    local name=$1 text=$2
    shift 2
    capture "$@"
    [[ "$status" = 0 && "$said" == "$text" ]]
    report "$name" $? "$said"
}

# The command fails, and says why with the text.
refuses() { # NAME TEXT COMMAND...
    local name=$1 text=$2
    shift 2
    capture "$@"
    [[ "$status" != 0 && "$said" == *"$text"* ]]
    report "$name" $? "$said"
}
