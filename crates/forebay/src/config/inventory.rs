//! Value types and limits of the inventory's settings.

use forebay_api::inventory::Permitted;
use forebay_objects::{Address, BucketAddress};

use super::error::Fault;
use super::settings::Inventory;
use super::value::Value;

/// All permitted sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources(pub(crate) Vec<Permitted>);

impl Value for Sources {
    const EXPECTED: &'static str =
        "directories and prefixes such as /srv/inventories,s3://bucket/reports/";

    fn parse(text: &str) -> Result<Self, String> {
        let places = text.split(',').map(str::trim).filter(|place| !place.is_empty());
        places.map(permitted).collect::<Result<_, _>>().map(Self)
    }
}

fn permitted(place: &str) -> Result<Permitted, String> {
    match place.parse() {
        Ok(Address::Bucket(BucketAddress { bucket, key })) => {
            let prefix = match &*key {
                "" => String::new(),
                key => format!("{}/", key.trim_end_matches('/')),
            };
            Ok(Permitted::Bucket { bucket, prefix })
        }
        Ok(Address::Local(path)) if path.is_absolute() => Ok(Permitted::Directory(path)),
        Ok(Address::Local(_)) => {
            Err(format!("{place:?} is neither an absolute path nor an s3:// address"))
        }
        Err(error) => Err(format!("{place:?} cannot be used: {error}")),
    }
}

/// Checks the settings of the inventory.
///
/// # Errors
/// The first setting that is not allowed, with what is allowed.
pub(super) fn check(inventory: &Inventory) -> Result<(), Fault> {
    let wrong = [
        ("indexes_max", !(1..=100_000).contains(&inventory.indexes_max), "1 to 100000"),
        ("open_max", !(1..=10_000).contains(&inventory.open_max), "1 to 10000"),
        ("queries_max", !(1..=256).contains(&inventory.queries_max), "1 to 256"),
        ("builds_max", !(1..=64).contains(&inventory.builds_max), "1 to 64"),
        ("build_memory", inventory.build_memory.0 < 16 << 20, "at least 16MiB"),
    ];
    match wrong.into_iter().find(|(_, wrong, _)| *wrong) {
        Some((key, _, allowed)) => {
            Err(Fault::of(format!("inventory.{key}"), format!("must be {allowed}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_directories_and_prefixes_of_buckets() {
        let bucket = |bucket: &str, prefix: &str| Permitted::Bucket {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        let read = |text| Sources::parse(text).map(|sources| sources.0);
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(
            read("/srv/a, s3://b,s3://b/reports ,s3://b/x//"),
            Ok(vec![
                Permitted::Directory("/srv/a".into()),
                bucket("b", ""),
                bucket("b", "reports/"),
                bucket("b", "x/"),
            ])
        );
        for wrong in ["srv", "../x", "s3://", "s3:///a", "gs://b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
