//! Parts in a bucket of S3 or of a compatible server.
//!
//! Small files are uploaded in one request, on the condition that the object does not exist; larger
//! ones in parts that become an object with the last request. A killed export leaves an incomplete
//! upload, which the bucket's rule for incomplete uploads removes.

use std::io::Read as _;
use std::net::IpAddr;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::ClientConfigKey;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore as _, ObjectStoreExt as _, PutMode};
use tempfile::NamedTempFile;
use tokio::runtime::Runtime;

use super::profile::Profile;
use super::{Staged, is_ours};
use crate::exit::{Coded, Exit};

/// Minimum size of one request of a multipart upload; smaller files are uploaded in one request.
const CHUNK_SIZE_MIN: u64 = 8 << 20;
/// Maximum number of requests of one upload; S3 permits ten thousand.
const CHUNKS_MAX: u64 = 9_000;
/// Number of concurrent requests of one upload.
const UPLOADS: usize = 4;
/// Time limit for one request if AWS_TIMEOUT is not set.
const TIMEOUT: &str = "300 seconds";

/// Options that override the environment (`AWS_...`).
#[derive(clap::Args, Debug, Default)]
pub(crate) struct S3Options {
    /// URL of the server, if not Amazon S3 [environment: AWS_ENDPOINT_URL].
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region [environment: AWS_REGION; default: us-east-1].
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Name the bucket in the path, not in the host name.
    #[arg(long)]
    path_style: bool,
    /// Allow a server without TLS [environment: AWS_ALLOW_HTTP].
    #[arg(long)]
    allow_http: bool,
    /// Profile in ~/.aws with keys, region and endpoint [environment: AWS_PROFILE].
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

impl S3Options {
    /// Returns whether none is given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { endpoint, region, path_style, allow_http, profile } = self;
        endpoint.is_none() && region.is_none() && profile.is_none() && !path_style && !allow_http
    }

    /// Returns the settings of the environment and the options, without the bucket; and the
    /// endpoint, if it is not Amazon's.
    fn builder(&self) -> anyhow::Result<(AmazonS3Builder, Option<String>)> {
        let mut builder = AmazonS3Builder::from_env();
        let profile = self.profile(&mut builder)?;
        let allow_http = self.allow_http || allows_http(&builder);
        builder = builder.with_allow_http(allow_http);
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let endpoint = self.endpoint.clone().or_else(|| {
            let of = |key| builder.get_config_value(&key);
            of(AmazonS3ConfigKey::S3Endpoint)
                .or_else(|| of(AmazonS3ConfigKey::Endpoint))
                .or(profile.endpoint)
        });
        if let Some(endpoint) = &endpoint
            && endpoint.to_ascii_lowercase().starts_with("http://")
            && !allow_http
        {
            let message = format!(
                "{endpoint} does not use TLS; --allow-http or AWS_ALLOW_HTTP=true permits that"
            );
            return Err(Coded::error(Exit::Usage, message));
        }
        if std::env::var_os("AWS_TIMEOUT").is_none() {
            let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            builder = builder.with_config(timeout, TIMEOUT);
        }
        Ok((builder, endpoint))
    }

    /// Adds the profile's settings where the environment has none; the keys of a profile named
    /// by the option take precedence over those of the environment.
    fn profile(&self, builder: &mut AmazonS3Builder) -> anyhow::Result<Profile> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let named = set("AWS_PROFILE").or_else(|| set("AWS_DEFAULT_PROFILE"));
        let Some(name) = self.profile.as_ref().or(named.as_ref()) else {
            return Ok(Profile::default());
        };
        let mut profile = Profile::load(name)?;
        let is_asked_for = self.profile.is_some();
        let has_keys = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some();
        let keys = match profile.keys.take() {
            Some(keys) => (is_asked_for || !has_keys).then_some(keys),
            None if is_asked_for => return Err(profile.no_keys(name)),
            None => None,
        };
        let mut with = std::mem::take(builder);
        if let Some(keys) = keys {
            with = environment_without_keys();
            with = with.with_access_key_id(keys.access).with_secret_access_key(keys.secret);
            if let Some(token) = keys.token {
                with = with.with_token(token);
            }
        }
        if let Some(region) = &profile.region
            && with.get_config_value(&AmazonS3ConfigKey::Region).is_none()
        {
            with = with.with_region(region);
        }
        *builder = with;
        Ok(profile)
    }

    /// Returns the access to buckets that are only read, of any name: with a custom endpoint
    /// they are named in the path.
    ///
    /// # Errors
    /// The options are not valid (exit code 2).
    pub(crate) fn reader(&self) -> anyhow::Result<AmazonS3Builder> {
        let (builder, endpoint) = self.builder()?;
        let virtual_hosted = endpoint.is_none() && !self.path_style;
        let builder = builder.with_virtual_hosted_style_request(virtual_hosted);
        Ok(match endpoint {
            Some(endpoint) => builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint),
            None => builder,
        })
    }
}

/// A prefix in a bucket.
pub(crate) struct S3 {
    runtime: Runtime,
    store: AmazonS3,
    bucket: String,
    prefix: Path,
}

impl S3 {
    /// Parses a URL, `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// The URL or the options are not valid (exit code 2).
    pub(crate) fn open(url: &str, options: &S3Options) -> anyhow::Result<Self> {
        let wrong = |text: String| Coded::error(Exit::Usage, text);
        let place = url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(wrong(format!("{url} names no bucket; use s3://BUCKET/PREFIX")));
        }
        let prefix = Path::parse(prefix.trim_matches('/'))
            .map_err(|error| wrong(format!("cannot use the prefix of {url}: {error}")))?;
        let (mut builder, endpoint) = options.builder()?;
        let mut virtual_hosted = !options.path_style;
        if let Some(endpoint) = endpoint {
            let (given, hosted) = endpoint_of(&endpoint, bucket, virtual_hosted);
            virtual_hosted = hosted;
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, given);
        }
        let store = builder
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(virtual_hosted)
            .build()
            .map_err(|error| Coded::wrap(Exit::Usage, "cannot use S3", error.into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the network runtime")?;
        Ok(Self { runtime, store, bucket: bucket.to_owned(), prefix })
    }

    fn url(&self, path: &Path) -> String {
        format!("s3://{}/{path}", self.bucket)
    }

    /// Returns an object of an earlier export.
    pub(super) fn first_part(&self) -> anyhow::Result<Option<String>> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let found = self.runtime.block_on(async {
            let mut objects = self.store.list(prefix);
            while let Some(object) = objects.try_next().await? {
                let first = object.location.prefix_match(&self.prefix).and_then(|mut it| it.next());
                let ours = first.is_some_and(|name| is_ours(name.as_ref()));
                if ours {
                    return Ok(Some(object.location));
                }
            }
            Ok::<_, Error>(None)
        });
        let found = found.with_context(|| format!("cannot list {}", self.url(&self.prefix)))?;
        Ok(found.map(|path| self.url(&path)))
    }

    pub(super) fn temporary(&self) -> anyhow::Result<NamedTempFile> {
        tempfile::Builder::new()
            .prefix("forebay-export-")
            .tempfile()
            .context("cannot create a temporary file")
    }

    pub(super) fn put(&self, mut staged: Staged, path: &str) -> anyhow::Result<()> {
        let location = path.split('/').fold(self.prefix.clone(), |path, name| path.join(name));
        let stored = self.runtime.block_on(async {
            if staged.bytes() < CHUNK_SIZE_MIN {
                self.put_whole(&mut staged, &location).await
            } else {
                self.put_in_parts(&mut staged, &location).await
            }
        });
        stored.map_err(|error| match error.downcast_ref() {
            Some(Error::AlreadyExists { .. }) => {
                anyhow::anyhow!(
                    "{} already exists; an export replaces no objects",
                    self.url(&location)
                )
            }
            _ => error.context(format!("cannot store {}", self.url(&location))),
        })
    }

    async fn put_whole(&self, staged: &mut Staged, location: &Path) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        staged.rewound()?.read_to_end(&mut bytes)?;
        let bytes = Bytes::from(bytes);
        let create = PutMode::Create.into();
        match self.store.put_opts(location, bytes.clone().into(), create).await {
            // The server does not support conditions, so check first, as the best that can be done.
            Err(Error::NotImplemented { .. }) => {
                self.check_absent(location).await?;
                self.store.put(location, bytes.into()).await?;
            }
            stored => drop(stored?),
        }
        Ok(())
    }

    async fn put_in_parts(&self, staged: &mut Staged, location: &Path) -> anyhow::Result<()> {
        self.check_absent(location).await?;
        let size = usize::try_from(CHUNK_SIZE_MIN.max(staged.bytes().div_ceil(CHUNKS_MAX)))?;
        let mut upload = self.store.put_multipart(location).await?;
        let completed = match send(staged, upload.as_mut(), size).await {
            Ok(()) => upload.complete().await.map(drop).map_err(Into::into),
            Err(error) => Err(error),
        };
        if completed.is_err()
            && let Err(failed) = upload.abort().await
        {
            // The first failure is reported; the rest is left to the bucket's rule.
            tracing::warn!("cannot abort the incomplete upload of {location}: {failed}");
        }
        completed
    }

    async fn check_absent(&self, location: &Path) -> Result<(), Error> {
        match self.store.head(location).await {
            Ok(_) => Err(Error::AlreadyExists {
                path: location.to_string(),
                source: "it existed before it was written".into(),
            }),
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether the environment allows a server without TLS.
fn allows_http(builder: &AmazonS3Builder) -> bool {
    let key = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    let value = builder.get_config_value(&key).unwrap_or_default();
    ["1", "true", "on", "yes", "y"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// Returns the environment's settings without its keys: a token for other keys would be refused.
fn environment_without_keys() -> AmazonS3Builder {
    use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey, Token};
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| name.starts_with("AWS_")).fold(
        AmazonS3Builder::new(),
        |builder, (name, value)| match name.to_ascii_lowercase().parse() {
            Ok(AccessKeyId | SecretAccessKey | Token) | Err(_) => builder,
            Ok(key) => builder.with_config(key, value),
        },
    )
}

/// Sends a file, a few requests at a time, and waits for all of them.
async fn send(
    staged: &mut Staged,
    upload: &mut dyn MultipartUpload,
    size: usize,
) -> anyhow::Result<()> {
    let file = staged.rewound()?;
    let mut running = FuturesUnordered::new();
    loop {
        let mut chunk = Vec::new();
        file.by_ref().take(size as u64).read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            break;
        }
        if running.len() >= UPLOADS {
            running.try_next().await?;
        }
        running.push(upload.put_part(chunk.into()));
    }
    while running.try_next().await?.is_some() {}
    Ok(())
}

/// Returns the endpoint with the bucket in its host name, if requested and if the host has a name.
fn endpoint_of(endpoint: &str, bucket: &str, virtual_hosted: bool) -> (String, bool) {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let rest = rest.trim_end_matches('/');
    let authority = rest.split('/').next().unwrap_or(rest);
    let is_address = authority.starts_with('[')
        || authority.split(':').next().is_some_and(|host| host.parse::<IpAddr>().is_ok());
    if virtual_hosted && !is_address {
        (format!("{scheme}://{bucket}.{rest}"), true)
    } else {
        (format!("{scheme}://{rest}"), false)
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint_of;

    #[test]
    fn a_bucket_is_part_of_a_host_name_but_never_of_an_address() {
        let hosted = |endpoint| endpoint_of(endpoint, "b", true);
        assert_eq!(hosted("https://s3.test/"), ("https://b.s3.test".to_owned(), true));
        assert_eq!(hosted("s3.test:9000"), ("https://b.s3.test:9000".to_owned(), true));
        assert_eq!(hosted("http://127.0.0.1:9000"), ("http://127.0.0.1:9000".to_owned(), false));
        assert_eq!(hosted("http://[::1]:9000"), ("http://[::1]:9000".to_owned(), false));
        let path = endpoint_of("https://s3.test", "b", false);
        assert_eq!(path, ("https://s3.test".to_owned(), false));
    }
}
