//! What the pipeline file says of a MongoDB, as a source or as a destination.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use forebay_base::HumanDuration;
use mongodb::options::{ConnectionString, HostInfo, ServerAddress};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::permissions::Reach;
use crate::config::{Secret, Text};

/// How a server is reached, and what becomes of values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `mongodb://user:password@host:port/database` or `mongodb+srv://...`, instead of the five fields
    /// below it. What it says of TLS, compression and pool holds where the fields for those say nothing.
    pub url: Option<Secret>,
    /// Name or address of the server.
    pub host: Text,
    /// Its port.
    pub port: NonZeroU16,
    /// Who asks; nobody in particular where it is not given.
    pub user: Option<Text>,
    /// Their password.
    pub password: Option<Secret>,
    /// The database that knows the user.
    pub auth_database: Text,
    /// The database. Where it is not given, it is that of the url.
    pub database: Option<Text>,
    /// Whether and how the connection is encrypted.
    pub tls: Tls,
    /// A file of certificates (PEM) to be trusted instead of the public ones.
    pub tls_ca_file: Option<Text>,
    /// How messages are compressed, where the server can.
    pub compression: Compression,
    /// How many connections are kept.
    pub pool: Pool,
    /// Of a source: documents at each end of a collection that are looked at to find its columns.
    pub sample_documents: u32,
    /// Of a source: types of columns by collection and field, as in SQL, where what is found by looking
    /// is not what is wanted.
    pub types: BTreeMap<String, BTreeMap<String, String>>,
    /// Of a source: what happens with a field that is no column.
    pub unknown_fields: UnknownFields,
    /// Of a source: how documents and arrays are written as JSON.
    pub json_style: Style,
    /// Of a source: how long an incremental run waits, once it knows how far it reads, for writes whose
    /// values are older than that.
    #[schemars(with = "String")]
    pub wait_for_late_writes: HumanDuration,
    /// Of a destination: what becomes of JSON.
    pub json: Json,
    /// Of a destination: what becomes of `numeric`.
    pub decimals: Decimals,
    /// Of a destination: what becomes of dates and timestamps.
    pub moments: Moments,
    /// Of a destination: columns whose texts of 24 hexadecimal digits become object ids.
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

impl Settings {
    /// What these settings lead to: of a replica set the servers that are named, of `mongodb+srv` the name
    /// that is looked up.
    pub(crate) fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        let url = self.url.as_ref().map(|url| ConnectionString::parse(url.expose()));
        match url.map(|url| url.map(|url| url.host_info)) {
            Some(Ok(HostInfo::HostIdentifiers(servers))) => {
                for server in servers {
                    match server {
                        ServerAddress::Tcp { host, port } => {
                            reach.add_host(&host, Some(port.unwrap_or(27017)));
                        }
                        // The directory of a socket: a path in any case.
                        other => reach.paths.push(other.to_string().into()),
                    }
                }
            }
            Some(Ok(HostInfo::DnsRecord(name))) => reach.add_host(&name, None),
            // What it would lead to nobody knows; it is refused when it is used.
            Some(Ok(_) | Err(_)) => {}
            None => reach.add_host(&self.host.0, Some(self.port.get())),
        }
        reach.and_file(self.tls_ca_file.as_ref())
    }
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// As the url says; where it says nothing, `verify` for any server but one on this machine, and
    /// `disable` for that.
    #[default]
    Auto,
    /// Not encrypted.
    Disable,
    /// Encrypted; the certificate is checked, and that it is for this host.
    Verify,
}

/// How messages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// With a server on this machine not at all; else by the first of zstd, snappy and zlib it has.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// zstd, where the server has it.
    Zstd,
    /// Snappy, where the server has it.
    Snappy,
    /// zlib, where the server has it.
    Zlib,
}

/// How many connections are kept to each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Connections that are kept open though nobody uses them.
    pub min: u32,
    /// Connections there may be.
    pub max: NonZeroU16,
}

impl Default for Pool {
    fn default() -> Self {
        Self { min: 0, max: NonZeroU16::new(100).unwrap_or(NonZeroU16::MIN) }
    }
}

/// What happens with a field that the sample had not, and `types` does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFields {
    /// The run fails, and names field and document.
    #[default]
    Fail,
    /// It is left out.
    Ignore,
}

/// How BSON is written as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Numbers as JSON's own; what JSON has no form for as extended JSON.
    #[default]
    Relaxed,
    /// All types can be told apart: `{"$numberInt": "1"}`.
    Canonical,
}

/// What becomes of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Json {
    /// Documents, arrays and values of BSON. Spaces, zeros at the end of numbers and the like are lost.
    #[default]
    Document,
    /// Text, to the byte.
    Text,
}

/// What becomes of `numeric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decimals {
    /// `decimal`, of 34 digits. A number with more is an error.
    #[default]
    Decimal128,
    /// Text.
    Text,
}

/// What becomes of dates and timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// `date`, in milliseconds. One with microseconds is an error, and so is `infinity`.
    #[default]
    Date,
    /// `date`, cut to milliseconds; `infinity` is an error.
    Milliseconds,
    /// Text, as in RFC 3339.
    Text,
}
