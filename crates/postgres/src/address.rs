//! Addresses of servers: `postgres://user:password@host:port/database`.
//!
//! Invariant: what may be a part of a password is not taken for the name of a host or a database,
//! since those are printed. The driver, like libpq, ends user and password at the first `@`, so an
//! address with two of them is refused, and so is a host with characters that no host has.

use forebay_base::ServerError;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Parses an address, or settings written as `name=value`.
///
/// # Errors
/// [`ServerError::Settings`], without any part of the address.
pub(crate) fn parse(url: &str) -> Result<Config, ServerError> {
    let refused = |what: &str| {
        ServerError::settings(
            what,
            "use postgres://user:password@host:port/database, with special characters as %XX \
             (@ is %40)",
        )
    };
    // The error message of the driver could reveal a part of it.
    let invalid = || refused("`url` is not a valid PostgreSQL address");
    let schemes = ["postgres://", "postgresql://"];
    if let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) {
        match rest.split_once('@') {
            Some((_, rest)) if rest.contains('@') => {
                return Err(refused("`url` is ambiguous: it has more than one @"));
            }
            Some((user, _)) if user.contains('?') => {
                return Err(refused("`url` is ambiguous: it has a ? before the @"));
            }
            _ => {}
        }
    }
    let config = url.parse::<Config>().map_err(|_| invalid())?;
    if config.get_hosts().iter().all(is_host) { Ok(config) } else { Err(invalid()) }
}

/// Whether a name can be that of a host, an address, or the directory of a socket.
fn is_host(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%'))
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_which_the_password_may_end_elsewhere_is_refused_without_any_part_of_it() {
        for url in [
            "postgres://bob:first@geheim@127.0.0.1:1/db",
            "postgresql://bob:first@geheim/x@127.0.0.1:1/db",
            "postgres://bob:first@geheim?x@127.0.0.1/db",
            "postgres://bob:a@geheim:b@127.0.0.1/db",
            "postgres://bob@corp:geheim@127.0.0.1/db",
            "postgres://h:5432/db?user=bob@corp&password=geheim",
            "postgres://h/db?password=geheim@more",
            "postgres://bob:a%40b@geheim%40h/db",
            "postgres://bob:a@geheim%20h/db",
            "postgres://user:geheim@[",
        ] {
            let error = parse(url).unwrap_err();
            assert!(matches!(error, ServerError::Settings { .. }), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("geheim"), "{error:?}");
        }
    }

    #[test]
    fn a_password_with_special_characters_is_read_whole() {
        for (url, password) in [
            ("postgres://bob:first%40second@h:1/db", "first@second"),
            ("postgres://bob:a/b#c:d@h-1.example_2.org:1/db", "a/b#c:d"),
            ("postgres://bob:x@[::1]:1/db?application_name=a%40b", "x"),
            ("postgres://bob:x@%2Frun%2Fpostgresql/db", "x"),
            ("host=h user=bob password=a@b@c", "a@b@c"),
            ("postgres://h/db?user=bob&password=a%40b", "a@b"),
        ] {
            let config = parse(url).unwrap();
            assert_eq!(config.get_password(), Some(password.as_bytes()), "{url}");
            assert_eq!(config.get_user(), Some("bob"), "{url}");
        }
    }
}
