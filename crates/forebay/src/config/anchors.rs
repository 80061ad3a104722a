//! Value types of the settings that name places for checkpoints, witnesses, and logs of others.
//!
//! Invariant: what is shown of an address has neither user, password nor query.

use std::path::PathBuf;

use forebay_events::checkpoint::{CosignerKey, VerifierKey};
use forebay_objects::{Address, BucketAddress};
use url::Url;

use super::value::{Toml, Value};

/// Maximum number of places, of witnesses, and of logs.
const ITEMS_MAX: usize = 64;

/// A place for checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A prefix in a bucket.
    Bucket(BucketAddress),
    /// A server that takes each checkpoint as the body of a POST request.
    Http(Url),
    /// A syslog server.
    Syslog(SyslogAddress),
}

/// Where a syslog server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyslogAddress {
    /// Whether it is reached over TCP, otherwise over UDP.
    pub(crate) tcp: bool,
    /// Host and port, as a socket address is written.
    pub(crate) host: String,
}

/// Places for checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchors(pub(crate) Vec<Anchor>);

/// Witnesses: URL and key of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Witnesses(pub(crate) Vec<(Url, CosignerKey)>);

/// Keys of logs that this server witnesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WitnessLogs(pub(crate) Vec<VerifierKey>);

/// The items of a list.
fn items(text: &str) -> Result<Vec<&str>, String> {
    let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    match items.len() {
        count if count > ITEMS_MAX => Err(format!("{count} items; the maximum is {ITEMS_MAX}")),
        _ => Ok(items),
    }
}

/// An address without user, password, query and fragment.
pub(crate) fn public(url: &Url) -> String {
    let mut url = url.clone();
    // Only addresses without a host refuse, and they have neither.
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return format!("{}://", url.scheme());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn web(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("not an http or https URL".to_owned());
    }
    Ok(url)
}

/// Parses a place.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn anchor(text: &str) -> Result<Anchor, String> {
    let named = |error: String| format!("{:?}: {error}", shown_item(text));
    match text.split_once("://") {
        Some(("http" | "https", _)) => web(text).map(Anchor::Http).map_err(named),
        Some((scheme @ ("syslog" | "syslog+udp" | "syslog+tcp"), rest)) => {
            let url: Url = text.parse().map_err(|_| named("not a URL".to_owned()))?;
            let plain = rest.split('/').next() == Some(rest) && !rest.contains(['@', '?', '#']);
            match (url.host_str(), url.port(), plain) {
                (Some(host), Some(port), true) => Ok(Anchor::Syslog(SyslogAddress {
                    tcp: scheme == "syslog+tcp",
                    host: format!("{host}:{port}"),
                })),
                _ => Err(named("write it as syslog://HOST:PORT".to_owned())),
            }
        }
        _ => match text.parse().map_err(|error| named(format!("{error}")))? {
            Address::Local(path) => Ok(Anchor::Directory(path)),
            Address::Bucket(address) => {
                address.prefix().map_err(|error| named(error.to_string()))?;
                Ok(Anchor::Bucket(address))
            }
        },
    }
}

/// An item without secrets.
fn shown_item(item: &str) -> String {
    match item.split_once("://") {
        Some(("http" | "https", _)) => {
            item.parse().map_or_else(|_| "(not a URL)".to_owned(), |url| public(&url))
        }
        _ => item.to_owned(),
    }
}

impl Value for Anchors {
    const EXPECTED: &'static str =
        "directories, s3://BUCKET/PREFIX, https://HOST/PATH or syslog://HOST:PORT";
    const TOML: Toml = Toml::List;

    fn parse(text: &str) -> Result<Self, String> {
        items(text)?.into_iter().map(anchor).collect::<Result<_, _>>().map(Self)
    }

    fn shown(text: &str) -> String {
        let shown: Vec<String> = text.split(',').map(|item| shown_item(item.trim())).collect();
        shown.join(",")
    }
}

impl Value for Witnesses {
    const EXPECTED: &'static str = "URL and key of each, such as \
        https://witness.example/ witness.example/w1+0123abcd+BASE64";
    const TOML: Toml = Toml::List;

    fn parse(text: &str) -> Result<Self, String> {
        let mut witnesses: Vec<(Url, CosignerKey)> = Vec::new();
        for item in items(text)? {
            let (url, key) = item
                .split_once(char::is_whitespace)
                .ok_or_else(|| format!("{:?} has no key after the URL", shown_item(item)))?;
            let url = web(url).map_err(|error| format!("{:?}: {error}", shown_item(url)))?;
            let key: CosignerKey = key
                .trim()
                .parse()
                .map_err(|error| format!("the key of {}: {error}", public(&url)))?;
            if witnesses.iter().any(|(_, known)| *known == key) {
                return Err(format!("{key} is the key of two witnesses"));
            }
            witnesses.push((url, key));
        }
        Ok(Self(witnesses))
    }

    fn shown(text: &str) -> String {
        let shown = text.split(',').map(|item| match item.trim().split_once(char::is_whitespace) {
            Some((url, key)) => format!("{} {}", shown_item(url), key.trim()),
            None => shown_item(item.trim()),
        });
        shown.collect::<Vec<_>>().join(",")
    }
}

impl Value for WitnessLogs {
    const EXPECTED: &'static str = "verifier keys such as log.example/events+0123abcd+BASE64";
    const TOML: Toml = Toml::List;

    fn parse(text: &str) -> Result<Self, String> {
        let key = |item: &str| item.parse().map_err(|error| format!("{item:?}: {error}"));
        items(text)?.into_iter().map(key).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITNESS: &str =
        "witness.example/w1+e75f6532+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
    const LOG: &str = "log.example/events+d608e478+AQu8NGpXZnw4ASC9nH/X5R0sX9/qN80vW/QFssa/by14";

    #[test]
    fn places_are_directories_prefixes_servers_and_syslog() {
        let bucket = BucketAddress { bucket: "b".to_owned(), key: "k/x".to_owned() };
        let syslog = |tcp, host: &str| Anchor::Syslog(SyslogAddress { tcp, host: host.to_owned() });
        assert_eq!(
            Anchors::parse(
                "/mnt/a, s3://b/k/x,https://u:p@h.example/in?t=1,syslog://log.example:514,\
                 syslog+tcp://[::1]:601,syslog+udp://10.0.0.1:5514"
            ),
            Ok(Anchors(vec![
                Anchor::Directory("/mnt/a".into()),
                Anchor::Bucket(bucket),
                Anchor::Http("https://u:p@h.example/in?t=1".parse().unwrap()),
                syslog(false, "log.example:514"),
                syslog(true, "[::1]:601"),
                syslog(false, "10.0.0.1:5514"),
            ]))
        );
        assert_eq!(Anchors::parse(" "), Ok(Anchors::default()));
        for wrong in [
            "gs://b/k",
            "s3://",
            "s3://b/a/../b",
            "http://",
            "syslog://log.example",
            "syslog://log.example:514/x",
            "syslog://u@log.example:514",
            "ftp://h/x",
        ] {
            assert!(Anchors::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Anchors::parse(&"/a,".repeat(65)).is_err());
    }

    #[test]
    fn what_is_shown_and_what_errors_name_has_no_secrets() {
        let text = "/mnt/a,https://user:secret@h.example/in?token=secret";
        assert_eq!(Anchors::shown(text), "/mnt/a,https://h.example/in");
        let witness = format!("https://user:secret@w.example/ {WITNESS}");
        assert_eq!(Witnesses::shown(&witness), format!("https://w.example/ {WITNESS}"));
        for wrong in ["https://user:secret@h.example/in", "https://user:secret@w.example/ x+y+z"] {
            let error = Witnesses::parse(wrong).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn witnesses_have_a_url_and_a_key_of_their_type() {
        let read = |text: &str| Witnesses::parse(text).map(|found| found.0.len());
        assert_eq!(read(""), Ok(0));
        assert_eq!(read(&format!("https://w.example/  {WITNESS}")), Ok(1));
        for wrong in [
            format!("https://w.example/ {LOG}"),
            format!("ftp://w.example/ {WITNESS}"),
            format!("https://a/ {WITNESS}, https://b/ {WITNESS}"),
            WITNESS.to_owned(),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(WitnessLogs::parse(LOG).map(|found| found.0.len()), Ok(1));
        assert!(WitnessLogs::parse(WITNESS).is_err());
    }
}
