//! Connections to MongoDB.
//!
//! The driver keeps a pool of connections for each server and finds out by itself where to write.
//!
//! Invariants: names for messages contain no secret; what the address says takes precedence over a
//! setting that leaves it to the address, and a setting that says otherwise over the address; an
//! encrypted connection verifies the certificate and its host name, unless the address forbids it.

use std::net::IpAddr;
use std::sync::Arc;

use forebay_sink::ServerError;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::{
    ClientOptions, Compressor, ConnectionString, Credential, ServerAddress, Tls as Encryption,
    TlsOptions, WriteConcern,
};
use mongodb::{Client, Database};
use tokio::sync::OnceCell;

use crate::error::{failure, is_of_network};
use crate::server::{Acknowledgement, Compression, ServerSettings, Tls};

/// A server, its connection settings, and the database. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ServerSettings,
    connected: OnceCell<Connected>,
}

#[derive(Debug)]
struct Connected {
    database: Database,
    /// The servers, as the address or its DNS record names them.
    hosts: Vec<String>,
    /// Its name in messages.
    name: String,
}

impl Server {
    /// Creates a server with these settings; sends and checks nothing.
    #[must_use]
    pub fn new(settings: ServerSettings) -> Server {
        Server(Arc::new(Inner { settings, connected: OnceCell::new() }))
    }

    /// The database. The first call resolves the address; the first command on it shows whether the
    /// server answers.
    ///
    /// # Errors
    /// [`ServerError::Settings`] if the address or the database is missing or invalid,
    /// [`ServerError::Unreachable`] if its name could not be resolved, [`ServerError::Refused`] if the
    /// file of certificates cannot be used.
    pub async fn database(&self) -> Result<&Database, ServerError> {
        Ok(&self.connected().await?.database)
    }

    /// Its name in messages: the database, the servers and the user.
    ///
    /// # Errors
    /// As [`database`](Self::database).
    pub async fn name(&self) -> Result<&str, ServerError> {
        Ok(&self.connected().await?.name)
    }

    /// The servers: `host:port`, as the address or its DNS record names them.
    ///
    /// # Errors
    /// As [`database`](Self::database).
    pub async fn hosts(&self) -> Result<&[String], ServerError> {
        Ok(&self.connected().await?.hosts)
    }

    /// Ensures that the server answers.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn ping(&self) -> Result<&Database, ServerError> {
        self.run("connect", doc! { "ping": 1 }).await?;
        self.database().await
    }

    /// Runs a command and returns its answer.
    ///
    /// * `act`: what is attempted, for the error.
    ///
    /// # Errors
    /// As [`database`](Self::database), and what [`failure`] makes of the server's.
    pub async fn run(&self, act: &str, command: Document) -> Result<Document, ServerError> {
        let Connected { database, name, .. } = self.connected().await?;
        database.run_command(command).await.map_err(|error| failure(act, name, &error))
    }

    /// Runs a command that may contain megabytes of documents. The inner error is the driver's, for
    /// callers that act on its code ([`code`](crate::error::code)).
    ///
    /// # Errors
    /// As [`database`](Self::database).
    pub async fn run_raw(
        &self,
        command: RawDocumentBuf,
    ) -> Result<Result<Document, Error>, ServerError> {
        Ok(self.database().await?.run_raw_command(command).await)
    }

    async fn connected(&self) -> Result<&Connected, ServerError> {
        self.0.connected.get_or_try_init(|| connect(&self.0.settings)).await
    }
}

async fn connect(settings: &ServerSettings) -> Result<Connected, ServerError> {
    let options = match &settings.url {
        Some(url) => ClientOptions::parse(url).await.map_err(|error| unparsed(&error))?,
        None => from_fields(settings),
    };
    let database = settings.database.clone().or_else(|| options.default_database.clone());
    let database = database.filter(|name| !name.is_empty()).ok_or_else(unnamed)?;
    let options = completed(options, settings);
    let hosts: Vec<String> = options.hosts.iter().map(ServerAddress::to_string).collect();
    let user = options.credential.as_ref().and_then(|credential| credential.username.as_ref());
    let user = user.map(|user| format!(" as {user}")).unwrap_or_default();
    let name = format!("MongoDB {database} at {}{user}", hosts.join(", "));
    let client =
        Client::with_options(options).map_err(|error| failure("connect", &name, &error))?;
    Ok(Connected { database: client.database(&database), hosts, name })
}

/// Checks an address and that a database is named, without a connection or a look-up of names.
///
/// # Errors
/// [`ServerError::Settings`]: what is wrong, without the address.
pub(crate) fn check(url: Option<&str>, database: Option<&str>) -> Result<(), ServerError> {
    let named = match url {
        Some(url) => {
            ConnectionString::parse(url).map_err(|error| unparsed(&error))?.default_database
        }
        None => None,
    };
    let database = database.or(named.as_deref()).filter(|name| !name.is_empty());
    database.map(|_| ()).ok_or_else(unnamed)
}

fn unnamed() -> ServerError {
    ServerError::settings(
        "no database is named",
        "append it to `url` after the last slash, or set `database`",
    )
}

/// The error message of the driver could reveal a part of the address.
fn unparsed(error: &Error) -> ServerError {
    if is_of_network(error) {
        return ServerError::Unreachable {
            act: "connect".to_owned(),
            server: "MongoDB".to_owned(),
            source: "its name could not be resolved".into(),
        };
    }
    ServerError::settings(
        "`url` is not a valid MongoDB address",
        "use mongodb://user:password@host:port/database, with special characters as %XX",
    )
}

fn from_fields(settings: &ServerSettings) -> ClientOptions {
    let address = ServerAddress::Tcp { host: settings.host.clone(), port: Some(settings.port) };
    let mut options = ClientOptions::builder().hosts(vec![address]).build();
    if let Some(user) = &settings.user {
        let mut credential = Credential::default();
        credential.username = Some(user.clone());
        credential.password.clone_from(&settings.password);
        credential.source = Some(settings.auth_database.clone());
        options.credential = Some(credential);
    }
    options
}

/// The options of the address, completed by the settings.
fn completed(mut options: ClientOptions, settings: &ServerSettings) -> ClientOptions {
    let is_local = options.hosts.iter().all(is_local);
    options.app_name.get_or_insert_with(|| "forebay".to_owned());
    options.connect_timeout.get_or_insert(settings.connect_timeout);
    options.server_selection_timeout.get_or_insert(settings.connect_timeout);
    let pool = settings.pool;
    options.max_pool_size.get_or_insert(pool.connections_max);
    let most = options.max_pool_size.filter(|most| *most > 0).unwrap_or(u32::MAX);
    options.min_pool_size.get_or_insert(pool.connections_min.min(most));
    options.max_idle_time = options.max_idle_time.or(pool.idle_timeout);
    if !settings.repeats_writes {
        options.retry_writes = Some(false);
    }
    if settings.acknowledgement == Acknowledgement::Journal {
        let mut concern = options.write_concern.take().unwrap_or_else(WriteConcern::majority);
        concern.journal.get_or_insert(true);
        options.write_concern = Some(concern);
    }
    compress(&mut options, settings.compression, is_local);
    encrypt(&mut options, settings, is_local);
    options
}

/// Whether a server is on this machine.
fn is_local(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Tcp { host, .. } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        // The path of a socket.
        _ => true,
    }
}

fn compress(options: &mut ClientOptions, compression: Compression, is_local: bool) {
    let zstd = Compressor::Zstd { level: None };
    let zlib = Compressor::Zlib { level: None };
    let (of_url, offered) =
        (options.compressors.take(), vec![zstd.clone(), Compressor::Snappy, zlib.clone()]);
    options.compressors = match compression {
        Compression::Auto if is_local => of_url,
        Compression::Auto | Compression::Offered => Some(of_url.unwrap_or(offered)),
        Compression::Url => of_url,
        Compression::None => None,
        Compression::Zstd => Some(vec![zstd]),
        Compression::Snappy => Some(vec![Compressor::Snappy]),
        Compression::Zlib => Some(vec![zlib]),
    };
}

fn encrypt(options: &mut ClientOptions, settings: &ServerSettings, is_local: bool) {
    let file = &settings.tls_ca_file;
    let verified = || Encryption::Enabled(TlsOptions::builder().ca_file_path(file.clone()).build());
    options.tls = match (settings.tls, options.tls.take()) {
        (Tls::Disable, _) => Some(Encryption::Disabled),
        (Tls::Verify, _) => Some(verified()),
        (Tls::Auto, None) if !is_local => Some(verified()),
        // Encrypted as the address says, with the certificates of the setting unless it names others.
        (Tls::Auto, Some(Encryption::Enabled(mut tls))) => {
            tls.ca_file_path = tls.ca_file_path.or_else(|| file.clone());
            Some(Encryption::Enabled(tls))
        }
        (Tls::Auto, of_url) => of_url,
    };
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;
    use crate::server::Pool;

    const HERE: &str = "mongodb://127.0.0.1/x";
    const THERE: &str = "mongodb://db.example/x";

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn settings(url: &str) -> ServerSettings {
        ServerSettings { url: Some(url.to_owned()), ..ServerSettings::default() }
    }

    fn options(settings: &ServerSettings) -> ClientOptions {
        let url = settings.url.clone().unwrap();
        completed(run(async { ClientOptions::parse(url).await.unwrap() }), settings)
    }

    #[test]
    fn an_address_that_cannot_be_says_so_without_its_password() {
        for url in ["mongodb://user:geheim@host:port/", "postgres://user:geheim@h/d", "", "geheim"]
        {
            let settings = settings(url);
            let error = run(async { Server::new(settings.clone()).database().await.unwrap_err() });
            assert!(matches!(error, ServerError::Settings { .. }), "{url}: {error}");
            assert!(!format!("{error} {error:?} {settings:?}").contains("geheim"));
            let checked = check(Some(url), Some("x")).unwrap_err();
            assert_eq!(checked.to_string(), error.to_string(), "{url}");
        }
    }

    #[test]
    fn a_database_is_named_once_somewhere() {
        let named = |url: &str, database: Option<&str>| {
            let database = database.map(str::to_owned);
            let server = Server::new(ServerSettings { database, ..settings(url) });
            run(async { server.database().await.map(|database| database.name().to_owned()) })
        };
        assert_eq!(named("mongodb://h/x", None).unwrap(), "x");
        assert_eq!(named("mongodb://h/x", Some("y")).unwrap(), "y");
        assert_eq!(named("mongodb://h", Some("y")).unwrap(), "y");
        for nothing in [named("mongodb://h", None), named("mongodb://h/x", Some(""))] {
            assert!(matches!(nothing.unwrap_err(), ServerError::Settings { .. }));
        }
        assert!(check(Some("mongodb://h/x"), None).is_ok() && check(None, Some("y")).is_ok());
        assert!(check(Some("mongodb+srv://h.example/x"), None).is_ok(), "no name is looked up");
        for (url, database) in [(Some("mongodb://h"), None), (None, None), (None, Some(""))] {
            assert!(check(url, database).is_err(), "{url:?} {database:?}");
        }
    }

    #[test]
    fn its_name_has_the_servers_and_the_user_and_no_password() {
        let url = settings("mongodb://ada:geheim@a,b:7/x");
        let user = Some("ada".to_owned());
        let password = Some("geheim".to_owned());
        let database = Some("x".to_owned());
        let fields = ServerSettings { user, password, database, ..ServerSettings::default() };
        for (settings, expected) in [
            (url, "MongoDB x at a:27017, b:7 as ada"),
            (fields, "MongoDB x at 127.0.0.1:27017 as ada"),
        ] {
            let server = Server::new(settings);
            run(async { assert_eq!(server.name().await.unwrap(), expected) });
        }
    }

    #[test]
    fn fields_are_a_user_of_the_named_database() {
        let fields = ServerSettings {
            user: Some("ada".to_owned()),
            password: Some("geheim".to_owned()),
            auth_database: "people".to_owned(),
            ..ServerSettings::default()
        };
        let credential = from_fields(&fields).credential.unwrap();
        assert_eq!(credential.password.as_deref(), Some("geheim"));
        assert_eq!(credential.source.as_deref(), Some("people"));
        assert!(from_fields(&ServerSettings::default()).credential.is_none());
    }

    #[test]
    fn what_the_address_says_takes_precedence() {
        let pool = Pool {
            connections_min: 5,
            connections_max: 8,
            idle_timeout: Some(Duration::from_secs(7)),
        };
        let plain = options(&ServerSettings { pool, ..settings(HERE) });
        assert_eq!((plain.min_pool_size, plain.max_pool_size), (Some(5), Some(8)));
        assert_eq!(plain.max_idle_time, Some(Duration::from_secs(7)));
        assert_eq!(plain.app_name.as_deref(), Some("forebay"));
        assert_eq!(plain.connect_timeout, Some(Duration::from_secs(10)));
        assert!(plain.retry_writes.is_none() && plain.write_concern.is_none());
        let url = format!("{HERE}?maxPoolSize=3&appName=mine&connectTimeoutMS=5&maxIdleTimeMS=9");
        let said = options(&ServerSettings { pool, ..settings(&url) });
        assert_eq!((said.min_pool_size, said.max_pool_size), (Some(3), Some(3)));
        assert_eq!(said.max_idle_time, Some(Duration::from_millis(9)));
        assert_eq!(said.app_name.as_deref(), Some("mine"));
        assert_eq!(said.connect_timeout, Some(Duration::from_millis(5)));
        let own = ServerSettings {
            repeats_writes: false,
            ..settings(&format!("{HERE}?retryWrites=true"))
        };
        assert_eq!(options(&own).retry_writes, Some(false), "the caller repeats them");
    }

    #[test]
    fn a_write_waits_for_the_journal_where_that_is_asked_for() {
        let acknowledgement = Acknowledgement::Journal;
        let concern = |url: &str| {
            options(&ServerSettings { acknowledgement, ..settings(url) }).write_concern.unwrap()
        };
        assert_eq!(concern(HERE).journal, Some(true));
        assert_eq!(concern(HERE).w, WriteConcern::majority().w);
        assert_eq!(concern(&format!("{HERE}?w=1")).w, Some(1_u32.into()));
        assert_eq!(concern(&format!("{HERE}?journal=false")).journal, Some(false));
    }

    #[test]
    fn messages_are_compressed_as_the_address_or_the_setting_says() {
        let count = |url: &str, compression| {
            let options = options(&ServerSettings { compression, ..settings(url) });
            options.compressors.map_or(0, |all| all.len())
        };
        let said = format!("{HERE}?compressors=snappy,zlib");
        let of = |compression| [HERE, THERE, said.as_str()].map(|url| count(url, compression));
        assert_eq!(of(Compression::Auto), [0, 3, 2]);
        assert_eq!(of(Compression::Url), [0, 0, 2]);
        assert_eq!(of(Compression::Offered), [3, 3, 2]);
        assert_eq!(of(Compression::None), [0, 0, 0]);
        assert_eq!(of(Compression::Zstd), [1, 1, 1]);
    }

    #[test]
    fn a_connection_is_encrypted_as_the_address_or_the_setting_says() {
        let said = format!("{HERE}?tls=true&tlsCAFile=/url.pem");
        let bare = format!("{HERE}?tls=true");
        let off = format!("{THERE}?tls=false");
        let all = [HERE, THERE, said.as_str(), bare.as_str(), off.as_str()];
        let of = |tls| {
            all.map(|url| {
                let tls_ca_file = Some(PathBuf::from("/set.pem"));
                let options = options(&ServerSettings { tls, tls_ca_file, ..settings(url) });
                match options.tls {
                    Some(Encryption::Enabled(tls)) => tls.ca_file_path,
                    _ => None,
                }
            })
        };
        let (set, url) = (Path::new("/set.pem"), Path::new("/url.pem"));
        let is = |found: [Option<PathBuf>; 5], expected: [Option<&Path>; 5]| {
            assert_eq!(found.each_ref().map(|path| path.as_deref()), expected);
        };
        is(of(Tls::Auto), [None, Some(set), Some(url), Some(set), None]);
        is(of(Tls::Disable), [None; 5]);
        is(of(Tls::Verify), [Some(set); 5]);
    }
}
