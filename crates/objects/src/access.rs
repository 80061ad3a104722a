//! Access to buckets: which server, which keys, and which limits on time.
//!
//! Keys, in order of precedence: those given explicitly; those of a profile that was asked for (stored in it, or
//! printed by its `credential_process`);
//! those of the environment; those of the profile that the environment names; and, only with an
//! environment, what `object_store` obtains itself: by a web identity, from the container, or from
//! the machine. Without an environment and without keys requests are not signed.
//!
//! Region and endpoint, in order of precedence: explicit, environment, profile.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::client::ClientConfigKey;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::address::BucketAddress;
use crate::bucket::Bucket;
use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::error::{ConfigError, Failure};
use crate::profile::{KeySource, Profile};
use crate::requests::Requests;
use crate::settings::{Addressing, Keys, REGION, Settings};

/// Maximum time until a connection is made, unless `AWS_CONNECT_TIMEOUT` is set.
const CONNECT_TIMEOUT: &str = "5 seconds";
/// Maximum time of a request with its body, unless `AWS_TIMEOUT` is set: a part of 8 MiB at 28 KB/s.
const TIMEOUT: &str = "300 seconds";
/// Maximum number of retries of a request that did not fail for good.
const RETRIES_MAX: usize = 6;
/// Time after the first attempt from which on nothing is retried. `object_store` itself would go on
/// for three minutes; a caller that waits here has its own retries.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum delay before the first retry. Later ones are longer, shortened at random.
const DELAY: Duration = Duration::from_millis(100);
/// Maximum delay before a retry.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Access to the buckets of a server. Cloning is cheap enough to be done for every bucket.
#[derive(Clone)]
pub struct Access {
    builder: AmazonS3Builder,
    endpoint: Option<Endpoint>,
    region: String,
    addressing: Addressing,
}

impl Access {
    /// Access with these settings alone. Without keys, requests are not signed.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was sent.
    pub fn new(settings: &Settings) -> Result<Self, ConfigError> {
        Self::resolve(settings, None)
    }

    /// Access with these settings, and the environment's where they have none.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was sent.
    pub fn with_environment(
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        Self::resolve(settings, Some(environment))
    }

    fn resolve(
        settings: &Settings,
        environment: Option<&Environment>,
    ) -> Result<Self, ConfigError> {
        // A profile that was asked for replaces the one that the environment names.
        let named = match (&settings.profile, environment) {
            (None, Some(environment)) => {
                environment.profile().map(|name| Profile::load(name, environment)).transpose()?
            }
            _ => None,
        };
        let keys = keys(settings, environment, named.as_ref())?;
        let mut builder = limited(AmazonS3Builder::new());
        if let Some(environment) = environment {
            builder = environment.apply(builder, keys.is_none());
        }
        builder = match keys {
            Some(KeySource::Keys(Keys { id, secret, token })) => {
                let keyed = builder.with_access_key_id(id).with_secret_access_key(secret);
                token.into_iter().fold(keyed, AmazonS3Builder::with_token)
            }
            Some(KeySource::Program(program)) => builder.with_credentials(program),
            None => builder.with_skip_signature(environment.is_none()),
        };
        let profile = settings.profile.as_ref().or(named.as_ref());
        let set = |key| builder.get_config_value(&key);
        let region = settings
            .region
            .clone()
            .or_else(|| set(AmazonS3ConfigKey::Region))
            .or_else(|| profile?.region.clone())
            .unwrap_or_else(|| REGION.to_owned());
        // The region becomes part of a host name: nothing in it may end that.
        if region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(ConfigError::Region { region });
        }
        let endpoint = settings
            .endpoint
            .clone()
            .or_else(|| set(AmazonS3ConfigKey::S3Endpoint))
            .or_else(|| set(AmazonS3ConfigKey::Endpoint))
            .or_else(|| profile?.endpoint.clone());
        let endpoint = endpoint.map(|endpoint| Endpoint::parse(&endpoint)).transpose()?;
        let allow_http = settings.allow_http || allows_http(&builder);
        if let Some(endpoint) = endpoint.as_ref().filter(|it| !it.has_tls() && !allow_http) {
            return Err(ConfigError::NoTls { endpoint: endpoint.to_string() });
        }
        let builder = builder.with_region(&region).with_allow_http(allow_http);
        Ok(Self { builder, endpoint, region, addressing: settings.addressing })
    }

    /// The same with the SHA-256 of every body beside it, which the server compares, stores, and returns
    /// with the object. A server that does not know such checksums ignores them.
    #[must_use]
    pub fn with_checksums(self) -> Self {
        Self { builder: self.builder.with_checksum_algorithm(Checksum::SHA256), ..self }
    }

    /// The same with another maximum time of a request with its body, for callers that wait for small ones.
    #[must_use]
    pub fn with_request_limit(self, limit: Duration) -> Self {
        let key = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let limit = format!("{} seconds", limit.as_secs().max(1));
        Self { builder: self.builder.with_config(key, limit), ..self }
    }

    /// The settings of a bucket's client, and the URL of the bucket without a slash at its end.
    pub(crate) fn builder(&self, bucket: &str) -> (AmazonS3Builder, String) {
        let hosted = || self.endpoint.as_ref()?.hosting(bucket);
        let hosted = if self.addressing == Addressing::Host { hosted() } else { None };
        let (is_hosted, endpoint, url) = match (&self.endpoint, hosted) {
            (_, Some(hosted)) => (true, Some(hosted.to_string()), hosted.to_string()),
            (Some(at), None) => (false, Some(at.to_string()), format!("{at}/{bucket}")),
            (None, None) => {
                let host = format!("s3.{}.amazonaws.com", self.region);
                match self.addressing {
                    Addressing::Path => (false, None, format!("https://{host}/{bucket}")),
                    _ => (true, None, format!("https://{bucket}.{host}")),
                }
            }
        };
        let builder = self.builder.clone().with_bucket_name(bucket);
        let builder = builder.with_virtual_hosted_style_request(is_hosted);
        let builder = match endpoint {
            // Precedes the other, which the environment may have set.
            Some(endpoint) => builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint),
            None => builder,
        };
        (builder, url)
    }

    /// The store of a whole bucket.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was sent.
    pub fn store(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, ConfigError> {
        let store = self.builder(bucket).0.build();
        Ok(Arc::new(store.map_err(|error| ConfigError::Client(error.into()))?))
    }

    /// The prefix of an address in its bucket.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was sent.
    pub fn bucket(&self, address: &BucketAddress) -> Result<Bucket, ConfigError> {
        let prefix = address.prefix().map_err(ConfigError::Address)?;
        Ok(Bucket::new(self.store(&address.bucket)?, &address.bucket, prefix))
    }

    /// Signed requests to a bucket that a store does not make.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing was sent.
    pub fn requests(&self, bucket: &str) -> Result<Requests, ConfigError> {
        let (builder, url) = self.builder(bucket);
        let requests = Requests::open(builder, url, &self.region);
        requests.map_err(|error| ConfigError::Client(Failure::from(error)))
    }

    /// Whether a bucket is a directory bucket (S3 Express), by its name or the environment.
    #[must_use]
    pub fn is_directory_bucket(&self, bucket: &str) -> bool {
        bucket.ends_with("--x-s3") || is_true(&self.builder, AmazonS3ConfigKey::S3Express)
    }

    /// The same with one retry after a short delay.
    #[cfg(test)]
    pub(crate) fn with_one_retry(self) -> Self {
        let backoff =
            BackoffConfig { init_backoff: Duration::from_millis(1), ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: 1, retry_timeout: RETRY_TIMEOUT };
        Self { builder: self.builder.with_retry(retry), ..self }
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("endpoint", &self.endpoint.as_ref().map(ToString::to_string))
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// The keys that sign requests; `None` leaves it to the environment.
fn keys(
    settings: &Settings,
    environment: Option<&Environment>,
    named: Option<&Profile>,
) -> Result<Option<KeySource>, ConfigError> {
    if let Some(keys) = &settings.keys {
        return Ok(Some(KeySource::Keys(keys.clone())));
    }
    if let Some(profile) = &settings.profile {
        return profile.required_keys().map(Some);
    }
    if environment.is_some_and(Environment::has_keys) {
        return Ok(None);
    }
    Ok(named.and_then(Profile::key_source))
}

/// A builder with limits on the time of requests and of their retries.
fn limited(builder: AmazonS3Builder) -> AmazonS3Builder {
    let client = |key| AmazonS3ConfigKey::Client(key);
    let backoff = BackoffConfig { init_backoff: DELAY, max_backoff: DELAY_MAX, base: 2.0 };
    builder
        .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT_TIMEOUT)
        .with_config(client(ClientConfigKey::Timeout), TIMEOUT)
        .with_retry(RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT })
}

/// Whether the environment allows a server without TLS.
fn allows_http(builder: &AmazonS3Builder) -> bool {
    is_true(builder, AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp))
}

/// Whether a setting is on, in every way that `object_store` accepts.
pub(crate) fn is_true(builder: &AmazonS3Builder, key: AmazonS3ConfigKey) -> bool {
    let value = builder.get_config_value(&key).unwrap_or_default();
    ["1", "true", "on", "yes", "y"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests;
