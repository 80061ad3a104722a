//! Settings of MongoDB, as a source or as a destination.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::HumanDuration;
use schemars::JsonSchema;
use serde::Deserialize;

use forebay_sdk::connector::{Destination, Source};
use forebay_sdk::registry::{ConnectorSettings, DestinationSettings, SourceSettings};
use forebay_sdk::settings::{Reach, Secret, Text};

/// Connection settings of a server, and the representation of values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `mongodb://user:password@host:port/database` or `mongodb+srv://...`, instead of the five
    /// fields below. Its options for TLS, compression and pool apply unless the fields for those
    /// are set.
    pub url: Option<Secret>,
    /// Name or address of the server.
    pub host: Text,
    /// Its port.
    pub port: NonZeroU16,
    /// User name. Without one, no authentication takes place.
    pub user: Option<Text>,
    /// Password of the user.
    pub password: Option<Secret>,
    /// Database that the user authenticates against.
    pub auth_database: Text,
    /// Database. The default is that of `url`.
    pub database: Option<Text>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) that are trusted instead of the public ones.
    pub tls_ca_file: Option<Text>,
    /// How messages are compressed, if the server supports it.
    pub compression: Compression,
    /// Limits on the connection pool.
    pub pool: Pool,
    /// For a source: number of documents at each end of a collection that are examined to infer its
    /// columns.
    pub sample_documents: u32,
    /// For a source: types of columns by collection and field, as in SQL, where they differ from
    /// the inferred ones.
    pub types: BTreeMap<String, BTreeMap<String, String>>,
    /// For a source: what to do with a field that has no column.
    pub unknown_fields: UnknownFields,
    /// For a source: how documents and arrays are written as JSON.
    pub json_style: Style,
    /// For a source: how long an incremental run waits, once it knows its end, for writes with
    /// older values.
    #[schemars(with = "String")]
    pub wait_for_late_writes: HumanDuration,
    /// For a destination: the representation of JSON.
    pub json: Json,
    /// For a destination: the representation of `numeric`.
    pub decimals: Decimals,
    /// For a destination: the representation of dates and timestamps.
    pub moments: Moments,
    /// For a destination: columns whose texts of 24 hexadecimal digits become object ids.
    pub object_ids: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: None,
            host: Text("127.0.0.1".into()),
            port: NonZeroU16::new(27017).unwrap_or(NonZeroU16::MIN),
            user: None,
            password: None,
            auth_database: Text("admin".into()),
            database: None,
            tls: Tls::Auto,
            tls_ca_file: None,
            compression: Compression::Auto,
            pool: Pool::default(),
            sample_documents: 5_000,
            types: BTreeMap::new(),
            unknown_fields: UnknownFields::Fail,
            json_style: Style::Relaxed,
            wait_for_late_writes: HumanDuration(Duration::from_secs(1)),
            json: Json::Document,
            decimals: Decimals::Decimal128,
            moments: Moments::Date,
            object_ids: Vec::new(),
        }
    }
}

impl ConnectorSettings for Settings {
    #[cfg(feature = "driver")]
    fn check(&self) -> Result<(), forebay_base::ServerError> {
        let url = self.url.as_ref().map(Secret::expose);
        crate::connect::check(url, self.database.as_ref().map(|name| name.0.as_str()))
    }

    /// The listed servers of a replica set, or the name to look up for `mongodb+srv`.
    fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        match &self.url {
            #[cfg(feature = "driver")]
            Some(url) => crate::connector::add_servers(url.expose(), &mut reach),
            // Nothing is reached: every use of the connector is refused.
            #[cfg(not(feature = "driver"))]
            Some(_) => {}
            None => reach.add_host(&self.host.0, Some(self.port.get())),
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

impl SourceSettings for Settings {
    #[cfg(feature = "driver")]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(crate::connector::MongoSource::new(self))
    }

    #[cfg(not(feature = "driver"))]
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(forebay_sdk::absent::Absent("mongodb"))
    }
}

impl DestinationSettings for Settings {
    #[cfg(feature = "driver")]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(crate::connector::MongoDestination::new(self))
    }

    #[cfg(not(feature = "driver"))]
    fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(forebay_sdk::absent::Absent("mongodb"))
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// As in the url. If it does not say, `verify` for any server except one on this machine, and
    /// `disable` for that.
    #[default]
    Auto,
    /// Unencrypted.
    Disable,
    /// Encrypted. The certificate and its host name are verified.
    Verify,
}

/// How messages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// None with a server on this machine; otherwise the first of zstd, snappy and zlib that it
    /// supports.
    #[default]
    Auto,
    /// No compression.
    None,
    /// zstd, if the server supports it.
    Zstd,
    /// Snappy, if the server supports it.
    Snappy,
    /// zlib, if the server supports it.
    Zlib,
}

/// Limits on the connections to each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Minimum number of connections that are kept open when idle.
    pub min: u32,
    /// Maximum number of connections.
    pub max: NonZeroU16,
}

impl Default for Pool {
    fn default() -> Self {
        Self { min: 0, max: NonZeroU16::new(100).unwrap_or(NonZeroU16::MIN) }
    }
}

/// What to do with a field that is neither in the sample nor in `types`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFields {
    /// Fail the run, and name field and document.
    #[default]
    Fail,
    /// Leave the field out.
    Ignore,
}

/// How BSON is written as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Numbers as JSON numbers; values that JSON cannot represent as extended JSON.
    #[default]
    Relaxed,
    /// With the type of every value: `{"$numberInt": "1"}`.
    Canonical,
}

/// The representation of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Json {
    /// As documents, arrays and BSON values. White space, trailing zeros of numbers and the like
    /// are lost.
    #[default]
    Document,
    /// As text, byte for byte.
    Text,
}

/// The representation of `numeric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decimals {
    /// As `decimal`, of 34 digits. A number with more is an error.
    #[default]
    Decimal128,
    /// As text.
    Text,
}

/// The representation of dates and timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// As `date`, in milliseconds. A value with microseconds or `infinity` is an error.
    #[default]
    Date,
    /// As `date`, truncated to milliseconds; `infinity` is an error.
    Milliseconds,
    /// As text, as in RFC 3339.
    Text,
}
