//! The section `alerts`: where the runs of a pipeline report that they failed or fall behind.
//!
//! Invariant: what is wrong with the receiver or the secret is an error of the file, before anything runs.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay_base::{ByteSize, HumanDuration};
use forebay_sdk::settings::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use url::Url;

/// The shortest limit: an idle source reports its time every ten seconds.
const LAG_MIN: Duration = Duration::from_secs(30);
/// Size of the key of a secret, in bytes.
const KEY_SIZE: usize = 32;

/// Where the runs of a pipeline report that they failed or fall behind.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertSettings {
    /// The URL that gets a POST request for each alert: `https://` or `http://`.
    pub url: AlertUrl,
    /// The secret that signs requests, as for webhooks: `whsec_` and the Base64 of 32 bytes. Without it they have no
    /// signature.
    pub secret: Option<AlertKey>,
    /// For `cdc`: the time that the destination may be behind the source; at least 30 s.
    pub max_lag: Option<LagLimit>,
    /// For `cdc`: the size of the changes in the source's log that may wait to be applied.
    #[schemars(with = "Option<String>")]
    pub max_lag_bytes: Option<ByteSize>,
}

/// The URL of a receiver. Its path may be a secret, so it is never printed.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct AlertUrl(Url);

impl AlertUrl {
    /// The URL.
    #[must_use]
    pub fn expose(&self) -> &Url {
        &self.0
    }
}

impl std::fmt::Debug for AlertUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.host_str().unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for AlertUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Secret::deserialize(deserializer)?;
        let url = Url::parse(text.expose()).ok();
        let fits = |url: &Url| {
            matches!(url.scheme(), "https" | "http")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.fragment().is_none()
        };
        let url = url.filter(fits).ok_or_else(|| {
            serde::de::Error::custom(
                "it is not the URL of a receiver; use https://HOST/PATH, without a user name, a password and a fragment",
            )
        })?;
        Ok(Self(url))
    }
}

/// The key that signs alerts.
#[derive(Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct AlertKey([u8; KEY_SIZE]);

impl AlertKey {
    /// The key.
    #[must_use]
    pub fn expose(&self) -> [u8; KEY_SIZE] {
        self.0
    }
}

impl std::fmt::Debug for AlertKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for AlertKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Secret::deserialize(deserializer)?;
        let bytes =
            text.expose().strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
        let key =
            bytes.and_then(|bytes| <[u8; KEY_SIZE]>::try_from(bytes).ok()).ok_or_else(|| {
                serde::de::Error::custom("the secret must be `whsec_` and the Base64 of 32 bytes")
            })?;
        Ok(Self(key))
    }
}

/// The time that a destination may be behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct LagLimit(Duration);

impl LagLimit {
    /// The time.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for LagLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limit = HumanDuration::deserialize(deserializer)?.get();
        if limit < LAG_MIN {
            return Err(serde::de::Error::custom(
                "the time of an idle source is known every ten seconds; use at least 30s",
            ));
        }
        Ok(Self(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<AlertSettings, String> {
        serde_saphyr::from_str(yaml)
            .map_err(|error: serde_saphyr::Error| error.without_snippet().to_string())
    }

    #[test]
    fn what_cannot_be_sent_or_signed_is_refused() {
        let secret = format!("whsec_{}", STANDARD.encode([7; KEY_SIZE]));
        let read_it = read(&format!(
            "{{url: 'https://a.example/x', secret: '{secret}', max_lag: 30s, max_lag_bytes: 1GiB}}"
        ));
        let settings = read_it.unwrap();
        assert_eq!(settings.secret.as_ref().map(AlertKey::expose), Some([7; KEY_SIZE]));
        assert_eq!(settings.max_lag.map(LagLimit::get), Some(LAG_MIN));
        assert!(!format!("{settings:?}").contains("/x"), "{settings:?}");
        for (yaml, found) in [
            ("{}", "url"),
            ("{url: 'ftp://a.example'}", "not the URL of a receiver"),
            ("{url: 'https://u:p@a.example'}", "not the URL of a receiver"),
            ("{url: 'a.example'}", "not the URL of a receiver"),
            ("{url: 'https://a.example', secret: hunter2}", "the secret must be"),
            ("{url: 'https://a.example', secret: whsec_AAAA}", "the secret must be"),
            ("{url: 'https://a.example', max_lag: 29s}", "use at least 30s"),
            ("{url: 'https://a.example', lag: 1h}", "unknown field"),
        ] {
            let error = read(yaml).unwrap_err();
            assert!(error.contains(found) && !error.contains("hunter2"), "{yaml}: {error}");
        }
    }
}
