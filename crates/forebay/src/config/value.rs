//! Types of settings: each is parsed from text and printed as text.
//!
//! Every source of settings (flag, environment, file, default) hands over text, so there is one
//! parser and one printed form for each type, and `config show` prints what `forebay.toml` accepts.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use forebay_base::bytes::ByteSize;
use forebay_base::durability::Durability;
use forebay_base::duration::HumanDuration;
use forebay_cache::store::Policy;

/// How a value is written in `forebay.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toml {
    /// In quotes.
    Text,
    /// A bare number.
    Number,
    /// `true` or `false`.
    Flag,
    /// In quotes, separated by commas, or a list of texts.
    List,
}

/// A type a setting can have.
pub(crate) trait Value: Sized {
    /// The form of a valid value, for error messages: "a size such as 64MiB".
    const EXPECTED: &'static str;
    /// How `forebay.toml` writes it.
    const TOML: Toml = Toml::Text;

    /// Parses the value from `text`, or returns what is wrong with it.
    fn parse(text: &str) -> Result<Self, String>;

    /// Returns `text` without its secrets.
    fn shown(text: &str) -> String {
        text.to_owned()
    }
}

fn from_str<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error: T::Err| error.to_string())
}

macro_rules! value_from_str {
    ($type:ty, $toml:expr, $expected:literal) => {
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            const TOML: Toml = $toml;

            fn parse(text: &str) -> Result<Self, String> {
                from_str(text)
            }
        }
    };
}

value_from_str!(SocketAddr, Toml::Text, "an address and port such as 127.0.0.1:8090 or [::1]:8090");
value_from_str!(ByteSize, Toml::Text, "a size such as 512KiB, 64MiB or 2GiB");
value_from_str!(HumanDuration, Toml::Text, "a duration such as 50ms, 10s or 5m");
value_from_str!(Durability, Toml::Text, "sync, interval:50ms or os");
value_from_str!(u32, Toml::Number, "a whole number from 0 to 4294967295");
value_from_str!(u16, Toml::Number, "a whole number from 0 to 65535");

/// A share, from 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(pub(crate) u8);

impl Value for Percent {
    const EXPECTED: &'static str = "a whole number from 1 to 100";
    const TOML: Toml = Toml::Number;

    fn parse(text: &str) -> Result<Self, String> {
        match from_str(text)? {
            percent @ 1..=100 => Ok(Self(percent)),
            _ => Err("not between 1 and 100".to_owned()),
        }
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";
    const TOML: Toml = Toml::Flag;

    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err("not true or false".to_owned()),
        }
    }
}

impl Value for String {
    const EXPECTED: &'static str = "text";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("the path is empty".to_owned()) } else { Ok(Self::from(text)) }
    }
}

/// An empty text means "not set".
impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const TOML: Toml = T::TOML;

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn shown(text: &str) -> String {
        T::shown(text)
    }
}

impl Value for Policy {
    const EXPECTED: &'static str = "noeviction, volatile-lru, volatile-lfu, volatile-random, \
        volatile-ttl, or allkeys-s3fifo, -lru, -lfu or -random";

    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(text.trim()).ok_or_else(|| "not one of the allowed values".to_owned())
    }
}

/// A setting that is one of a few words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident, $expected:literal { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$vmeta])* $variant,)+ }

        impl Value for $name {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err("not one of the allowed values".to_owned()),
                }
            }
        }
    };
}

pub(super) use words;

words! {
    /// When requests need an API key.
    Auth, "auto, required or off" {
        /// As soon as a key file exists.
        Auto = "auto",
        /// Always, even before the first key is made.
        Required = "required",
        /// Never.
        Off = "off",
    }
}

impl From<Auth> for forebay_api::keys::Auth {
    fn from(auth: Auth) -> Self {
        match auth {
            Auth::Auto => Self::Auto,
            Auth::Required => Self::Required,
            Auth::Off => Self::Off,
        }
    }
}

words! {
    /// Format of log lines.
    LogFormat, "auto, human or json" {
        /// Human on a terminal, JSON otherwise.
        Auto = "auto",
        /// For reading by people.
        Human = "human",
        /// One JSON object for each line.
        Json = "json",
    }
}

words! {
    /// Threading model of the cache.
    CacheServer, "per-connection or pooled" {
        /// A connection stays with one thread.
        PerConnection = "per-connection",
        /// Connections share a limited pool of workers.
        Pooled = "pooled",
    }
}

words! {
    /// How the cache's threads access their sockets.
    CacheNetwork, "auto, epoll or io_uring" {
        /// io_uring where it is permitted.
        Auto = "auto",
        /// epoll: one read and one write for each ready connection.
        Epoll = "epoll",
        /// io_uring. Starting fails without it.
        Uring = "io_uring",
    }
}
