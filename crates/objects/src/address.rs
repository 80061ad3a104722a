//! Addresses of files: a local path, or `s3://BUCKET/KEY`.

use std::path::PathBuf;
use std::str::FromStr;

use object_store::path::Path as Key;

use crate::error::AddressError;

/// Where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A file or directory of this machine.
    Local(PathBuf),
    /// A key or prefix in a bucket.
    Bucket(BucketAddress),
}

/// A key or prefix in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketAddress {
    /// Name of the bucket: letters, digits, `.`, `-`, `_` and `:`.
    pub bucket: String,
    /// The key or prefix as it was written, also with a slash at its end; may be empty.
    pub key: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once("://") {
            Some(("s3", place)) => BucketAddress::of(place).map(Self::Bucket),
            Some(_) => Err(AddressError::Scheme),
            None if text.is_empty() => Err(AddressError::Empty),
            None => Ok(Self::Local(text.into())),
        }
    }
}

impl BucketAddress {
    /// Parses `BUCKET/KEY`, without a scheme.
    ///
    /// # Errors
    /// [`AddressError`]: there is no bucket, or its name is invalid.
    pub fn of(place: &str) -> Result<Self, AddressError> {
        let (bucket, key) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(AddressError::NoBucket);
        }
        // The name becomes part of a host name: nothing in it may end that.
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
        if !bucket.bytes().all(fits) {
            return Err(AddressError::BucketName { bucket: bucket.to_owned() });
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// Its key as the prefix of others: without slashes at both ends.
    ///
    /// # Errors
    /// [`AddressError::Prefix`]: it has parts that no key has, such as `..` or an empty one.
    pub fn prefix(&self) -> Result<Key, AddressError> {
        Key::parse(self.key.trim_matches('/'))
            .map_err(|error| AddressError::Prefix { reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> BucketAddress {
        match text.parse() {
            Ok(Address::Bucket(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_address_is_a_path_or_a_key_in_a_bucket() {
        for (text, name, key, prefix) in [
            ("s3://b", "b", "", ""),
            ("s3://b/", "b", "", ""),
            ("s3://b/k/x.csv", "b", "k/x.csv", "k/x.csv"),
            ("s3://my.bucket-1/deep/er/", "my.bucket-1", "deep/er/", "deep/er"),
            ("s3://tenant:b/any where", "tenant:b", "any where", "any where"),
        ] {
            let address = bucket(text);
            assert_eq!((&*address.bucket, &*address.key), (name, key), "{text}");
            assert_eq!(address.prefix().unwrap().as_ref(), prefix, "{text}");
        }
        for path in ["/srv/files", "files", ".", "a:b", "s3:/b"] {
            assert_eq!(path.parse::<Address>().unwrap(), Address::Local(path.into()));
        }
    }

    #[test]
    fn an_address_without_bucket_or_of_another_kind_is_refused() {
        for (text, reason) in [
            ("", "it is empty"),
            ("s3://", "it has no bucket"),
            ("s3:///key", "it has no bucket"),
            ("gs://b/k", "only s3:// is supported"),
            ("https://b/k", "only s3:// is supported"),
            ("s3://evil.test#/k", "cannot be in the name of a bucket"),
            ("s3://user@evil.test/k", "cannot be in the name of a bucket"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(bucket("s3://b/a//b").prefix().is_err());
        assert!(bucket("s3://b/a/../b").prefix().is_err());
    }
}
