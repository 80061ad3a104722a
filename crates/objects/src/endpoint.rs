//! The URL of a server, checked.

use std::fmt;

use url::{Host, Url};

use crate::error::{ConfigError, without_secrets};

/// The URL of a server: scheme, host, port and perhaps a path; no user and no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(Url);

impl Endpoint {
    /// Parses a URL. Without a scheme it is that of a server with TLS.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let whole = match text.contains("://") {
            true => text.to_owned(),
            false => format!("https://{text}"),
        };
        if whole.contains('@') {
            return Err(ConfigError::EndpointSecret { endpoint: without_secrets(&whole) });
        }
        let invalid = |reason: String| ConfigError::Endpoint { endpoint: text.to_owned(), reason };
        let url = Url::parse(&whole).map_err(|error| invalid(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("use https://HOST:PORT".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it must end with its path".to_owned()));
        }
        Ok(Self(url))
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The name or address of the server, and its port.
    pub(crate) fn host(&self) -> Option<(String, Option<u16>)> {
        Some((self.0.host_str()?.to_owned(), self.0.port_or_known_default()))
    }

    /// The URL with the bucket in its host name, if its host has a name.
    pub(crate) fn hosting(&self, bucket: &str) -> Option<Self> {
        let Some(Host::Domain(host)) = self.0.host() else { return None };
        let mut url = self.0.clone();
        url.set_host(Some(&format!("{bucket}.{host}"))).ok()?;
        Some(Self(url))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_part_of_a_host_name_but_never_of_an_address() {
        let hosted = |endpoint: &str| {
            Endpoint::parse(endpoint).unwrap().hosting("b").map(|hosted| hosted.to_string())
        };
        assert_eq!(hosted("https://s3.test/").as_deref(), Some("https://b.s3.test"));
        assert_eq!(hosted("s3.test:9000").as_deref(), Some("https://b.s3.test:9000"));
        assert_eq!(hosted("http://127.0.0.1:9000"), None);
        assert_eq!(hosted("http://[::1]:9000"), None);
        let path = Endpoint::parse("https://s3.test/below/").unwrap();
        assert_eq!(path.to_string(), "https://s3.test/below");
    }

    #[test]
    fn a_server_is_its_host_whether_or_not_the_scheme_is_written() {
        for (text, host) in [
            ("evil.test:9000", ("evil.test", Some(9000))),
            ("http://S3.test", ("s3.test", Some(80))),
            ("https://[::1]:9", ("[::1]", Some(9))),
        ] {
            let found = Endpoint::parse(text).unwrap().host().unwrap();
            assert_eq!((&*found.0, found.1), host, "{text}");
        }
    }

    #[test]
    fn an_endpoint_with_a_password_is_refused_and_not_repeated() {
        for text in
            ["https://user:hunter2@s3.test", "user:hunter2@s3.test", "http://u:hunt/er2@s3.test"]
        {
            let error = Endpoint::parse(text).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("hunt") && text.contains("s3.test"), "{text}");
        }
        for wrong in ["", "ftp://x", "https://", "https://x?y", "https://x y"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
