//! Addresses for display, with their secrets left out.
//!
//! Invariant: nothing that grants access is shown: no password, token or key, at whatever position
//! in the address. What cannot be parsed is hidden.

use percent_encoding::percent_decode_str;

/// Replaces a hidden part.
pub const HIDDEN: &str = "***";

/// Parts of the names of parameters whose values are secret: `password`, `sslpassword`, `passfile`,
/// `authMechanismProperties` (which has `AWS_SESSION_TOKEN`), `X-Amz-Signature`, `api_key`.
const SECRET: [&str; 9] = [
    "pass",
    "secret",
    "token",
    "key",
    "credential",
    "signature",
    "mechanismproperties",
    "jwt",
    "pwd",
];
/// Schemes of databases, where the name before the password is no secret.
const NAMED: [&str; 5] = ["postgres", "postgresql", "mongodb", "mongodb+srv", "redis"];

/// Returns an address, or connection settings written as `name=value`, with every secret replaced
/// by `***`.
#[must_use]
pub fn shown(address: &str) -> String {
    if address.is_empty() {
        return String::new();
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return settings(address);
    };
    let (authority, path) = authority(rest);
    let (path, fragment) = match path.split_once('#') {
        Some((path, _)) => (path, format!("#{HIDDEN}")),
        None => (path, String::new()),
    };
    let path = match path.split_once('?') {
        Some((path, query)) => format!("{path}?{}", parameters(query)),
        None => path.to_owned(),
    };
    let authority = match authority.rsplit_once('@') {
        None => authority.to_owned(),
        Some((user, host)) => {
            let is_named = NAMED.iter().any(|named| scheme.eq_ignore_ascii_case(named));
            match user.split_once(':') {
                Some((user, _)) if is_named => format!("{user}:{HIDDEN}@{host}"),
                None if is_named => format!("{user}@{host}"),
                // A user name alone may be a token.
                _ => format!("{HIDDEN}@{host}"),
            }
        }
    };
    format!("{scheme}://{authority}{path}{fragment}")
}

/// Returns the part of an address after `://` that names users and hosts, and the remainder.
#[must_use]
pub fn authority(rest: &str) -> (&str, &str) {
    // A password may contain an unescaped slash by mistake: the last @ counts.
    let hosts = rest.rfind('@').map_or(0, |at| at + 1);
    let end = rest.get(hosts..).and_then(|hosts| hosts.find(['/', '?', '#']));
    rest.split_at(end.map_or(rest.len(), |end| hosts + end))
}

fn parameters(query: &str) -> String {
    let parameter = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
        _ => parameter.to_owned(),
    };
    query.split('&').map(parameter).collect::<Vec<_>>().join("&")
}

fn is_secret(name: &str) -> bool {
    // Servers decode names, too.
    let plain = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
    SECRET.iter().any(|secret| plain.contains(secret))
}

/// Settings as `host=a password='b c'`. Only names known to be harmless are shown; anything else
/// may be a misplaced password.
fn settings(text: &str) -> String {
    const HARMLESS: [&str; 7] =
        ["host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name"];
    let is_settings = text.split_whitespace().next().is_some_and(|first| first.contains('='));
    // A quoted value may contain anything.
    if !is_settings || text.contains(['\'', '"', '\\']) {
        return HIDDEN.to_owned();
    }
    let one = |setting: &str| match setting.split_once('=') {
        Some((name, value)) if HARMLESS.contains(&&*name.to_ascii_lowercase()) => {
            format!("{name}={value}")
        }
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    };
    text.split_whitespace().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        for (address, expected) in [
            ("postgres://a:se/c@ret@h:1/d", "postgres://a:***@h:1/d"),
            ("postgres://a@h/d", "postgres://a@h/d"),
            ("mongodb+srv://u:p@h1,h2/d?tls=true", "mongodb+srv://u:***@h1,h2/d?tls=true"),
            ("postgres://h/d?user=a&password=b", "postgres://h/d?user=a&password=***"),
            (
                "postgres://h/d?p%61ssword=b&sslpassword=c",
                "postgres://h/d?p%61ssword=***&sslpassword=***",
            ),
            (
                "mongodb://id:k@h/d?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:t",
                "mongodb://id:***@h/d?authMechanism=MONGODB-AWS&authMechanismProperties=***",
            ),
            (
                "mongodb://h/d?tlsCertificateKeyFilePassword=x",
                "mongodb://h/d?tlsCertificateKeyFilePassword=***",
            ),
            ("https://user:pass@h:1/x", "https://***@h:1/x"),
            ("https://token@h/x?X-Amz-Signature=s&a=b", "https://***@h/x?X-Amz-Signature=***&a=b"),
            ("https://h/x#access_token=s", "https://h/x#***"),
            ("host=h port=1 password=p user=u", "host=h port=1 password=*** user=u"),
            ("host=h password='a b'", "***"),
            ("secret", "***"),
            ("", ""),
        ] {
            assert_eq!(shown(address), expected, "{address}");
        }
    }
}
