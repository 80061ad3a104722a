//! Hides secret words of commands in SLOWLOG, as in Redis.
//!
//! Invariant: a password, a key, or a user's name given with one is stored nowhere.

use crate::command::Spec;

/// Replaces a secret word, as in Redis.
pub(super) const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secret. Redis' own are included: a client that sets one here by
/// mistake is refused, and may have sent a real password.
const SETTINGS: &[&str] = &[
    "requirepass",
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

fn is(word: Option<&&[u8]>, name: &str) -> bool {
    word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether the word at position `at` of a command is secret.
pub(super) fn is_secret(spec: &Spec, args: &[&[u8]], at: usize) -> bool {
    let before = |by: usize| at.checked_sub(by).and_then(|at| args.get(at));
    match spec.name {
        "auth" => at > 0,
        // `HELLO 3 AUTH user password`: the words before are not secret and cannot be `AUTH`'s.
        "hello" => at > 2 && (is(before(1), "auth") || at > 3 && is(before(2), "auth")),
        // `CONFIG SET name value name value`.
        "config" => {
            let is_value = at > 2 && at % 2 == 1 && is(args.get(1), "set");
            is_value && SETTINGS.iter().any(|name| is(before(1), name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, shown: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let spec = crate::command::find(args[0]).unwrap();
        let word = |at: usize| if is_secret(spec, &args, at) { REDACTED } else { args[at] };
        let found: Vec<_> = (0..args.len()).map(|at| String::from_utf8_lossy(word(at))).collect();
        assert_eq!(found.join(" "), shown);
    }

    #[test]
    fn passwords_and_keys_are_never_shown() {
        check("AUTH p", "AUTH (redacted)");
        check("auth user p", "auth (redacted) (redacted)");
        check("HELLO 3 auth user p SETNAME n", "HELLO 3 auth (redacted) (redacted) SETNAME n");
        check("HELLO 3 SETNAME n AUTH u p", "HELLO 3 SETNAME n AUTH (redacted) (redacted)");
        check("CONFIG SET RequirePass p", "CONFIG SET RequirePass (redacted)");
        check(
            "CONFIG SET timeout 1 requirepass p masterauth q",
            "CONFIG SET timeout 1 requirepass (redacted) masterauth (redacted)",
        );
        for line in ["CONFIG GET requirepass x", "SET auth p", "HELLO 3", "ECHO requirepass"] {
            check(line, line);
        }
    }
}
