//! The value type of the settings that name object storage for the bytes of files.

use forebay_objects::{Address, BucketAddress};

use super::value::{Toml, Value};

/// A prefix in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(pub(crate) BucketAddress);

impl Value for Prefix {
    const EXPECTED: &'static str = "s3://BUCKET/PREFIX, or empty for the data directory";
    const TOML: Toml = Toml::Text;

    fn parse(text: &str) -> Result<Self, String> {
        match text.parse().map_err(|error| format!("{text:?}: {error}"))? {
            Address::Local(_) => Err(format!(
                "{text:?} is a path; files that are not in a bucket are in the data directory"
            )),
            Address::Bucket(address) => {
                address.prefix().map_err(|error| format!("{text:?}: {error}"))?;
                Ok(Self(address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prefix_in_a_bucket_is_accepted() {
        let parsed = Prefix::parse("s3://files/of/forebay").unwrap();
        assert_eq!((&*parsed.0.bucket, &*parsed.0.key), ("files", "of/forebay"));
        for wrong in ["/srv/blobs", "gs://b/p", "s3://", "s3://b/../p"] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
    }
}
