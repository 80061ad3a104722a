//! Settings of the database to which the intake forwards documents.
//!
//! Invariant: a password in the address is never shown: not by `config show`, not in an error, not
//! in a log.

use forebay_base::address::{authority, shown};

use super::error::Fault;
use super::settings::Database;
use super::value::{Value, words};

/// Address of a database.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DatabaseUrl(pub(crate) String);

/// Without the password.
impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// The kind of database an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    /// `postgres://` or `postgresql://`.
    Postgres,
    /// `mongodb://` or `mongodb+srv://`.
    Mongo,
}

impl DatabaseUrl {
    /// Returns the kind of database.
    pub(crate) fn kind(&self) -> DatabaseKind {
        if self.0.starts_with("mongodb") { DatabaseKind::Mongo } else { DatabaseKind::Postgres }
    }

    /// Returns the address with this password for its user.
    ///
    /// # Errors
    /// It names no user, or already includes a password.
    pub(crate) fn with_password(&self, password: &str) -> Result<String, &'static str> {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let Some((user, host)) = authority(rest).0.rsplit_once('@') else {
            return Err("it names no user for the password");
        };
        if user.contains(':') {
            return Err("it already includes a password");
        }
        let (password, path) = (percent_encode(password), authority(rest).1);
        Ok(format!("{scheme}://{user}:{password}@{host}{path}"))
    }
}

fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

impl Value for DatabaseUrl {
    const EXPECTED: &'static str = "an address such as postgres://user@host:5432/database or \
        mongodb://user@host:27017/database";

    fn parse(text: &str) -> Result<Self, String> {
        const SCHEMES: [&str; 4] = ["postgres://", "postgresql://", "mongodb://", "mongodb+srv://"];
        let text = text.trim();
        match SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            Some("") => Err("it names no host".to_owned()),
            Some(_) => Ok(Self(text.to_owned())),
            None => Err("it begins with neither of the known schemes".to_owned()),
        }
    }

    fn shown(text: &str) -> String {
        shown(text)
    }
}

words! {
    /// Whether the connection to the database is encrypted.
    DatabaseTls, "auto, disable or verify" {
        /// Encrypted and checked, unless the server is on this machine.
        Auto = "auto",
        /// Not encrypted.
        Disable = "disable",
        /// Encrypted and checked.
        Verify = "verify",
    }
}

/// Checks the settings of the database.
///
/// # Errors
/// The first setting that is not allowed, with what is allowed.
pub(super) fn check(database: &Database) -> Result<(), Fault> {
    if database.url.is_none() {
        return if database.password_file.is_some() {
            Err(Fault::of("intake.database.password_file", "requires intake.database.url"))
        } else {
            Ok(())
        };
    }
    if database.connections_min > database.connections_max || database.connections_max == 0 {
        let keys = ["intake.database.connections_min", "intake.database.connections_max"];
        let problem = "connections_max must be at least 1 and at least connections_min";
        return Err(Fault::between(&keys, problem));
    }
    let wrong = [
        ("spill_max", database.spill_max.0 < 1 << 20, "at least 1MiB"),
        ("log_max", database.log_max.0 < 64 << 20, "at least 64MiB"),
        ("retry_max", database.retry_max.get().is_zero(), "more than 0"),
    ];
    match wrong.into_iter().find(|(_, wrong, _)| *wrong) {
        Some((key, _, allowed)) => {
            Err(Fault::of(format!("intake.database.{key}"), format!("must be {allowed}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        for (url, shown) in [
            ("postgres://a:se/c@ret@h:1/d", "postgres://a:***@h:1/d"),
            ("postgres://a@h/d", "postgres://a@h/d"),
            ("mongodb+srv://u:p@h1,h2/d?tls=true", "mongodb+srv://u:***@h1,h2/d?tls=true"),
            ("postgres://h/d?user=a&password=b", "postgres://h/d?user=a&password=***"),
            (
                "mongodb://i:k@h/d?authMechanismProperties=AWS_SESSION_TOKEN:t",
                "mongodb://i:***@h/d?authMechanismProperties=***",
            ),
            ("secret", "***"),
            ("", ""),
        ] {
            assert_eq!(DatabaseUrl::shown(url), shown);
        }
        let url = DatabaseUrl::parse("postgres://a:b@h/d").unwrap();
        assert_eq!(format!("{url:?}"), "postgres://a:***@h/d");
    }

    #[test]
    fn a_password_from_a_file_is_added_to_the_user() {
        let url = |text: &str| DatabaseUrl::parse(text).unwrap();
        let with = |text: &str| url(text).with_password("p@/ä");
        assert_eq!(with("postgres://a@h:1/d").unwrap(), "postgres://a:p%40%2F%C3%A4@h:1/d");
        assert_eq!(
            with("mongodb://a@h1,h2/d?x=1").unwrap(),
            "mongodb://a:p%40%2F%C3%A4@h1,h2/d?x=1"
        );
        assert!(with("postgres://h/d").is_err() && with("postgres://a:b@h/d").is_err());
        assert_eq!(url("mongodb://h/d").kind(), DatabaseKind::Mongo);
        assert!(
            DatabaseUrl::parse("mysql://h").is_err() && DatabaseUrl::parse("postgres://").is_err()
        );
    }
}
