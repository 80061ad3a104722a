//! Virtual hosts: `BUCKET.DOMAIN`, for configured domains only.
//!
//! Every other host name means a path-style request. The parsers of `s3s` make a bucket of any name, so that
//! `GET /` on `localhost` lists the bucket `localhost`, and none matches if the client names a port.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The configured domains.
#[derive(Debug, Clone)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// * `domains`: in lower case, without ports.
    pub(crate) fn new(domains: &[String]) -> Self {
        let mut domains = domains.to_vec();
        // The most specific one decides.
        domains.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Self(domains)
    }

    /// Returns the bucket that a `Host` header names, if it does.
    pub(crate) fn bucket(&self, host: &str) -> Option<String> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if self.0.contains(&name) {
            return None;
        }
        let below = |domain: &String| name.strip_suffix(domain)?.strip_suffix('.');
        self.0.iter().find_map(below).filter(|bucket| !bucket.is_empty()).map(str::to_owned)
    }
}

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let parsed = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => parsed.with_bucket(bucket),
            None => parsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_domains_name_buckets_whatever_the_port() {
        let hosts = Hosts::new(&["example.com".to_owned(), "s3.example.com".to_owned()]);
        for (host, bucket) in [
            ("data.s3.example.com", Some("data")),
            ("data.s3.example.com:9000", Some("data")),
            ("Data.S3.Example.COM.", Some("data")),
            ("a.b.s3.example.com", Some("a.b")),
            ("data.example.com", Some("data")),
            ("s3.example.com:9000", None),
            ("example.com", None),
            (".example.com", None),
            ("localhost", None),
            ("localhost:9000", None),
            ("other.example.org", None),
            ("badexample.com", None),
            ("", None),
        ] {
            assert_eq!(hosts.bucket(host).as_deref(), bucket, "{host}");
        }
        assert_eq!(Hosts::new(&[]).bucket("data.localhost"), None);
    }
}
