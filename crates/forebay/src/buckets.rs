//! Access to S3 of commands and of the server: their options, and the environment of this process.

use forebay_objects::{
    Access, Address, Addressing, BucketAddress, ConfigError, Environment, Profile, Settings,
};

use crate::exit::{Coded, Exit};

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

    /// Returns the access that the options and the environment describe.
    ///
    /// * `addressing`: how buckets are named without `--path-style`.
    ///
    /// # Errors
    /// The options are not valid (exit code 2), or a file of profiles cannot be read.
    pub(crate) fn access(&self, addressing: Addressing) -> anyhow::Result<Access> {
        let environment = environment();
        let open = || {
            let profile = self.profile.as_deref();
            let settings = Settings {
                endpoint: self.endpoint.clone(),
                region: self.region.clone(),
                keys: None,
                profile: profile.map(|name| Profile::load(name, &environment)).transpose()?,
                addressing: if self.path_style { Addressing::Path } else { addressing },
                allow_http: self.allow_http,
            };
            Access::with_environment(&settings, &environment)
        };
        open().map_err(refused)
    }
}

/// Parses the URL of a prefix in a bucket, `s3://BUCKET/PREFIX`. Nothing is sent.
///
/// # Errors
/// It is none (exit code 2).
pub(crate) fn prefix_in_bucket(url: &str) -> anyhow::Result<BucketAddress> {
    let wrong =
        |error: &dyn std::fmt::Display| Coded::error(Exit::Usage, format!("{url}: {error}"));
    let address = match url.parse().map_err(|error| wrong(&error))? {
        Address::Bucket(address) => address,
        Address::Local(_) => return Err(wrong(&"it is not s3://BUCKET/PREFIX")),
    };
    address.prefix().map_err(|error| wrong(&error))?;
    Ok(address)
}

/// Returns the error of a command whose settings lead to no connection.
pub(crate) fn refused(error: ConfigError) -> anyhow::Error {
    match error {
        ConfigError::NoTls { endpoint } => {
            let message = format!(
                "{endpoint} does not use TLS; --allow-http or AWS_ALLOW_HTTP=true permits that"
            );
            Coded::error(Exit::Usage, message)
        }
        ConfigError::Read { .. } => error.into(),
        error => Coded::wrap(Exit::Usage, "cannot use S3", error.into()),
    }
}

/// Returns what the environment of this process says about S3.
pub(crate) fn environment() -> Environment {
    Environment::new(std::env::vars_os(), std::env::home_dir())
}
