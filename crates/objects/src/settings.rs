//! What is set explicitly for a connection.

use std::fmt;

use crate::endpoint::Endpoint;
use crate::profile::Profile;

/// The region of a connection that names none.
pub(crate) const REGION: &str = "us-east-1";

/// Settings of a connection that are given explicitly. They take precedence over the environment
/// and over the profile.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// URL of the server. The default is Amazon's.
    pub endpoint: Option<String>,
    /// Region. The default is `us-east-1`.
    pub region: Option<String>,
    /// Keys that sign requests.
    pub keys: Option<Keys>,
    /// A profile that was asked for by name.
    pub profile: Option<Profile>,
    /// How a request names the bucket.
    pub addressing: Addressing,
    /// Whether a server without TLS is permitted.
    pub allow_http: bool,
}

/// How a request names the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// In the host name of Amazon's servers, in the path of others.
    #[default]
    Auto,
    /// In the path.
    Path,
    /// In the host name, unless the host is an IP address.
    Host,
}

/// Keys that sign requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl Keys {
    /// Keys from their parts; `token` belongs to temporary keys.
    pub fn new(id: impl Into<String>, secret: impl Into<String>, token: Option<String>) -> Self {
        Self { id: id.into(), secret: secret.into(), token }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(***)")
    }
}

impl Settings {
    /// The server and port that [`Access::new`](crate::Access::new) would connect to; `None` if it
    /// would refuse the endpoint.
    #[must_use]
    pub fn host(&self) -> Option<(String, Option<u16>)> {
        match self.endpoint() {
            Some(endpoint) => Endpoint::parse(endpoint).ok()?.host(),
            None => Some((format!("s3.{}.amazonaws.com", self.region()), Some(443))),
        }
    }

    /// The endpoint, or that of the profile.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        let of_profile = || self.profile.as_ref()?.endpoint.as_deref();
        self.endpoint.as_deref().or_else(of_profile)
    }

    /// The region, or that of the profile, or the default.
    pub(crate) fn region(&self) -> &str {
        let of_profile = || self.profile.as_ref()?.region.as_deref();
        self.region.as_deref().or_else(of_profile).unwrap_or(REGION)
    }
}
