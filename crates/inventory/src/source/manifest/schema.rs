//! The three grammars of a manifest's `fileSchema`: a list of names (CSV), a `struct<...>` (ORC), and
//! the message of a Parquet file.

/// Maximum number of columns of a schema.
const FIELDS_MAX: usize = 1000;

/// The names of the columns, in their order.
///
/// # Errors
/// The fault of the schema.
pub(crate) fn fields(schema: &str) -> Result<Vec<String>, String> {
    let schema = schema.trim();
    let names =
        if schema.strip_prefix("message").is_some_and(|s| s.starts_with(char::is_whitespace)) {
            message(schema)
        } else if let Some(fields) = schema.strip_prefix("struct<") {
            fields.strip_suffix('>').and_then(structure)
        } else {
            Some(schema.split(',').map(|name| name.trim().to_owned()).collect())
        };
    let cut =
        schema.char_indices().nth(200).map_or(schema, |(at, _)| schema.get(..at).unwrap_or(schema));
    let names = names.ok_or_else(|| format!("its fileSchema {cut:?} is invalid"))?;
    if names.len() > FIELDS_MAX {
        return Err(format!("its fileSchema has {} columns", names.len()));
    }
    if names.iter().any(|name| !is_name(name)) {
        return Err(format!("its fileSchema {cut:?} has a column without a name"));
    }
    Ok(names)
}

/// The fields of `message NAME { REPETITION TYPE NAME (ANNOTATION) = ID; ... }`.
fn message(schema: &str) -> Option<Vec<String>> {
    let (_, body) = schema.split_once('{')?;
    let body = body.trim_end().strip_suffix('}')?;
    let mut names = Vec::new();
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let mut words = field.split_whitespace();
        let repetition = words.next()?;
        if !["required", "optional", "repeated"].contains(&repetition.to_ascii_lowercase().as_str())
        {
            return None;
        }
        let _type = words.next()?;
        // The annotation may follow without a blank.
        let name = words.next()?.split('(').next()?;
        names.push(name.to_owned());
    }
    Some(names)
}

/// The fields of `NAME:TYPE,NAME:TYPE`, where a type may have commas in brackets.
fn structure(fields: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    let mut ends = Vec::new();
    for (at, byte) in fields.bytes().enumerate() {
        match byte {
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => ends.push(at),
            _ => {}
        }
    }
    ends.push(fields.len());
    for end in ends {
        let (name, _) = fields.get(start..end)?.split_once(':')?;
        names.push(name.trim().to_owned());
        start = end + 1;
    }
    Some(names)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>(){};:\"".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_grammar_names_its_columns() {
        let csv = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, StorageClass";
        let names =
            ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "StorageClass"];
        assert_eq!(fields(csv).unwrap(), names);
        let orc = "struct<bucket:string,key:string,size:bigint,last_modified_date:timestamp,x:decimal(1,2)>";
        assert_eq!(fields(orc).unwrap(), ["bucket", "key", "size", "last_modified_date", "x"]);
        let old = "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); \
                   optional int64 size; optional int64 last_modified_date (TIMESTAMP_MILLIS);}";
        assert_eq!(fields(old).unwrap(), ["bucket", "key", "size", "last_modified_date"]);
        let new = "message s3.inventory {\n  required binary bucket (STRING);\n  required binary \
                   key(STRING);\n  optional int64 size;\n  optional int64 last_modified_date \
                   (TIMESTAMP(MILLIS,true));\n  optional boolean is_latest = 4;\n}\n";
        let names = ["bucket", "key", "size", "last_modified_date", "is_latest"];
        assert_eq!(fields(new).unwrap(), names);
    }

    #[test]
    fn what_is_no_schema_is_an_error() {
        for schema in [
            "",
            "Bucket,,Key",
            "struct<key:string",
            "struct<key>",
            "struct<a:b>>,c:d>",
            "message x",
            "message x { key }",
            "message x { required binary }",
            "message x { sometimes binary key; }",
        ] {
            assert!(fields(schema).is_err(), "{schema:?}");
        }
    }
}
