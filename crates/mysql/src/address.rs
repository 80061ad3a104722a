//! The parts of an address: `mysql://user:password@host:port/database`.
//!
//! Invariant: what may be a part of a password is not taken for the name of a host or a database, since
//! those are printed. So an address with more than one `@`, or with a `?` or a `#`, is refused.

use std::net::IpAddr;

use forebay_base::ServerError;
use forebay_sdk::settings::Secret;
use percent_encoding::percent_decode_str;

use crate::settings::Settings;

/// Port of a server whose address has none.
const PORT: u16 = 3306;

/// Where a server is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Name or address of the server, or the path of its socket.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
}

/// Without secrets.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Address {
    /// The address in settings.
    ///
    /// # Errors
    /// [`ServerError::Settings`], without any part of the address.
    pub(crate) fn of(settings: &Settings) -> Result<Self, ServerError> {
        let password = settings.password.as_ref().map(|secret| secret.expose().to_owned());
        let Some(url) = &settings.url else {
            let database = settings.database.as_ref().map(|name| name.0.clone());
            let database = database.filter(|name| !name.is_empty()).ok_or_else(no_database)?;
            let (host, user) = (settings.host.0.clone(), settings.user.0.clone());
            return Ok(Self { host, port: settings.port.get(), user, password, database });
        };
        let mut address = parse(url)?;
        if address.password.is_some() && password.is_some() {
            return Err(ServerError::settings(
                "`url` has a password, and `password` is set",
                "remove one of them",
            ));
        }
        address.password = address.password.or(password);
        Ok(address)
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        let Self { host, port, user, database, .. } = self;
        match self.is_socket() {
            true => format!("MySQL {database} at {host} as {user}"),
            false => format!("MySQL {database} at {host}:{port} as {user}"),
        }
    }

    /// Whether the server is reached through a socket of this machine.
    pub(crate) fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |ip: IpAddr| ip.is_loopback();
        self.is_socket()
            || self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(is_loopback)
    }
}

fn no_database() -> ServerError {
    ServerError::settings(
        "the settings have no database",
        "set `database`, or use `url: mysql://user@host:port/database`",
    )
}

fn parse(url: &Secret) -> Result<Address, ServerError> {
    let refused = |what: &str| {
        ServerError::settings(
            what,
            "use mysql://user@host:port/database, with special characters as %XX (@ is %40)",
        )
    };
    let invalid = || refused("`url` is not a valid MySQL address");
    let text = url.expose();
    let rest = ["mysql://", "mariadb://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or_else(invalid)?;
    if rest.matches('@').count() > 1 {
        return Err(refused("`url` is ambiguous: it has more than one @"));
    }
    if rest.contains(['?', '#']) {
        return Err(refused("`url` has options, or a password with ? or #"));
    }
    let decoded = |part: &str| {
        percent_decode_str(part)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| invalid())
    };
    let (user, server) = match rest.split_once('@') {
        Some((user, server)) => (user, server),
        None => ("", rest),
    };
    let (user, password) = match user.split_once(':') {
        Some((user, password)) => (user, Some(decoded(password)?)),
        None => (user, None),
    };
    let (server, database) = server.split_once('/').ok_or_else(no_database)?;
    let database = decoded(database)?;
    if database.is_empty() {
        return Err(no_database());
    }
    let (host, port) = host_and_port(server).ok_or_else(invalid)?;
    let user = match user {
        "" => "root".to_owned(),
        user => decoded(user)?,
    };
    Ok(Address { host, port, user, password, database })
}

/// The host and the port of `host`, `host:port`, `[::1]` or `[::1]:port`.
fn host_and_port(server: &str) -> Option<(String, u16)> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':')?),
            };
            (host, port)
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let is_host = |c: char| {
        c.is_alphanumeric() || matches!(c, '.' | '-' | '_') || c == ':' && server.starts_with('[')
    };
    if host.is_empty() || !host.chars().all(is_host) {
        return None;
    }
    let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port > 0))?;
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use forebay_sdk::registry::ConnectorSettings as _;
    use forebay_sdk::settings::Text;

    use super::*;

    fn settings(url: &str) -> Settings {
        Settings { url: Some(Secret::from(url.to_owned())), ..Settings::default() }
    }

    #[test]
    fn an_address_that_is_ambiguous_or_has_no_database_is_refused_without_any_part_of_it() {
        for url in [
            "mysql://bob:first@geheim@127.0.0.1:1/db",
            "mysql://bob:geheim?x@127.0.0.1/db",
            "mysql://bob:geheim#x@127.0.0.1/db",
            "mysql://bob:geheim@h:x/db",
            "mysql://bob:geheim@h:0/db",
            "mysql://bob:geheim@[geheim]/db",
            "mysql://bob:geheim@h%20/db",
            "mysql://bob:geheim@h/",
            "mysql://bob:geheim@h",
            "postgres://bob:geheim@h/db",
            "geheim",
        ] {
            let settings = settings(url);
            let error = settings.check().unwrap_err();
            assert!(matches!(error, ServerError::Settings { .. }), "{url}: {error}");
            assert!(!format!("{error} {error:?} {settings:?}").contains("geheim"), "{error:?}");
            assert_eq!(settings.reach(), forebay_sdk::settings::Reach::default(), "{url}");
        }
        let fields = Settings::default();
        assert!(fields.check().unwrap_err().to_string().contains("database"));
    }

    #[test]
    fn an_address_is_read_in_parts() {
        for (url, host, port, user, password, database) in [
            ("mysql://bob@h:1/db", "h", 1, "bob", None, "db"),
            (
                "mariadb://bob:a%40b@h-1.example_2.org/d%20b",
                "h-1.example_2.org",
                3306,
                "bob",
                Some("a@b"),
                "d b",
            ),
            ("mysql://h/db", "h", 3306, "root", None, "db"),
            ("mysql://bob:@[::1]:7/db", "::1", 7, "bob", Some(""), "db"),
        ] {
            let address = Address::of(&settings(url)).unwrap();
            let found = (address.host.as_str(), address.port, address.user.as_str());
            assert_eq!(found, (host, port, user), "{url}");
            assert_eq!(
                (address.password.as_deref(), address.database.as_str()),
                (password, database)
            );
        }
    }

    #[test]
    fn a_password_is_given_once() {
        let password = Some(Secret::from("geheim".to_owned()));
        let one = Settings { password: password.clone(), ..settings("mysql://bob@h/db") };
        assert_eq!(Address::of(&one).unwrap().password.as_deref(), Some("geheim"));
        let two = Settings { password, ..settings("mysql://bob:x@h/db") };
        assert!(Address::of(&two).is_err());
    }

    #[test]
    fn a_socket_is_a_path_and_a_server_is_a_host() {
        let database = Some(Text("db".into()));
        let host = Text("/run/mysqld/mysqld.sock".into());
        let socket = Settings { host, database: database.clone(), ..Settings::default() };
        assert!(socket.reach().hosts.is_empty() && socket.reach().paths.len() == 1);
        let host =
            Settings { host: Text("db.example.org".into()), database, ..Settings::default() };
        assert_eq!(host.reach().hosts, [("db.example.org".to_owned(), Some(3306))]);
        assert!(
            Address::of(&socket).unwrap().is_local() && !Address::of(&host).unwrap().is_local()
        );
    }
}
