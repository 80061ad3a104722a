//! Recognises the reports of other stores, so that they are refused by name.
//!
//! Reports of Azure Blob Storage and Google Cloud Storage have columns that look like those of S3,
//! and storage classes of the same names at other prices. Read as they are, they would be priced as
//! Amazon S3.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::columns::plain;

/// A store whose reports are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    Azure,
    Google,
}

/// Columns that only reports of Azure have, in the form of [`plain`].
const AZURE: [&str; 9] = [
    "blobtype",
    "accesstier",
    "accesstierchangetime",
    "accesstierinferred",
    "leasestatus",
    "hdiisfolder",
    "contentcrc64",
    "iscurrentversion",
    "remainingretentiondays",
];
/// Columns that every report of Google has.
const GOOGLE_ALL: [&str; 3] = ["project", "bucket", "name"];
/// Columns of which reports of Google usually have several.
const GOOGLE: [&str; 9] = [
    "timecreated",
    "timedeleted",
    "timestorageclassupdated",
    "metageneration",
    "retentionexpirationtime",
    "softdeletetime",
    "temporaryhold",
    "md5hash",
    "crc32c",
];

impl Foreign {
    /// The store whose reports have columns of these names.
    pub(crate) fn of_columns<S: AsRef<str>>(names: &[S]) -> Option<Self> {
        let plain: Vec<String> = names.iter().map(|name| plain(name.as_ref())).collect();
        let has = |wanted: &str| plain.iter().any(|name| name == wanted);
        // The least that a report of Azure has, in its spelling.
        let is_azure_size = |name: &S| name.as_ref() == "Content-Length";
        if has("name") && (AZURE.iter().any(|name| has(name)) || names.iter().any(is_azure_size)) {
            return Some(Self::Azure);
        }
        let all = GOOGLE_ALL.iter().all(|name| has(name));
        let several = GOOGLE.iter().filter(|name| has(name)).count() >= 2;
        // Its class in its spelling, which is neither that of S3's CSV nor that of its Parquet.
        let is_google_class = |name: &S| name.as_ref() == "storageClass";
        let google = all || has("name") && (several || names.iter().any(is_google_class));
        google.then_some(Self::Google)
    }

    /// The store that wrote a manifest.
    pub(crate) fn of_manifest(json: &[u8]) -> Option<Self> {
        let fields: Fields = serde_json::from_slice(json).ok()?;
        if fields.rule_definition.is_some() || fields.destination_container.is_some() {
            Some(Self::Azure)
        } else if fields.report_config.is_some() || fields.report_shards_file_names.is_some() {
            Some(Self::Google)
        } else {
            None
        }
    }

    /// Why a report is refused, and what to do instead.
    pub(crate) fn reason(self) -> String {
        let (report, columns) = match self {
            Self::Azure => {
                ("an inventory report of Azure Blob Storage", "Name, Content-Length and AccessTier")
            }
            Self::Google => (
                "an inventory report of Google Cloud Storage (Storage Insights)",
                "name, size and storageClass",
            ),
        };
        format!(
            "it is {report}, whose storage classes are not those of Amazon S3 and must not be \
             priced as such; write its columns {columns} as the columns key, size and class of a \
             Parquet or CSV file, with class names of your own, and price them with a price table \
             that has these classes"
        )
    }
}

/// The fields by which manifests are recognised.
#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "ruleDefinition")]
    rule_definition: Option<IgnoredAny>,
    #[serde(rename = "destinationContainer")]
    destination_container: Option<IgnoredAny>,
    report_config: Option<IgnoredAny>,
    report_shards_file_names: Option<IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_other_stores_are_recognised_by_their_columns() {
        for names in [
            "Name,Creation-Time,Last-Modified,Content-Length,BlobType,AccessTier",
            "Name,Content-Length",
            "Name,AccessTier,VersionId,IsCurrentVersion",
        ] {
            let names: Vec<&str> = names.split(',').collect();
            assert_eq!(Foreign::of_columns(&names), Some(Foreign::Azure), "{names:?}");
        }
        for names in [
            "project,bucket,name,size,storageClass",
            "bucket,name,location,size,timeCreated,updated,storageClass,md5Hash,crc32c",
            "name,size,timeCreated,metageneration",
            "name,size,storageClass",
        ] {
            let names: Vec<&str> = names.split(',').collect();
            assert_eq!(Foreign::of_columns(&names), Some(Foreign::Google), "{names:?}");
        }
        for names in [
            "Bucket,Key,VersionId,IsLatest,IsDeleteMarker,Size,LastModifiedDate,ETag,StorageClass,\
             IntelligentTieringAccessTier,ChecksumAlgorithm,ObjectOwner",
            "name,size,storage_class,updated",
            "key,content_length,crc32c",
            "key,size,storageClass",
            "name,bytes,mtime",
        ] {
            let names: Vec<&str> = names.split(',').collect();
            assert_eq!(Foreign::of_columns(&names), None, "{names:?}");
        }
    }
}
