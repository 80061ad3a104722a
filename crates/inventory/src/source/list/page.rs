//! Parsing an answer to ListObjectsV2.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use crate::source::csv::decode_key;

/// Maximum nesting of an answer's elements.
const DEPTH_MAX: usize = 16;

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Listed>,
    /// Prefixes below the requested one, up to the delimiter.
    pub(crate) prefixes: Vec<Vec<u8>>,
    /// The token for the next page; `None` on the last page.
    pub(crate) next: Option<String>,
}

/// A listed object: each field as it was written, decoded if it was encoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: Vec<u8>,
    pub(crate) size: String,
    pub(crate) modified: String,
    pub(crate) class: String,
}

/// An error answer of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Page {
    /// Parses an answer.
    ///
    /// # Errors
    /// Why it is not a listing.
    pub(crate) fn decode(xml: &[u8]) -> Result<Self, String> {
        let mut page = Self::default();
        let (mut object, mut encoded, mut truncated, mut is_listing) =
            (Listed::default(), false, false, false);
        read(xml, |path, text| {
            is_listing |= path.first().is_some_and(|root| root == "ListBucketResult");
            let path: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
            match (path.as_slice(), text) {
                (["Contents"], None) => page.objects.push(std::mem::take(&mut object)),
                (["Contents", "Key"], Some(text)) => object.key = text.into_bytes(),
                (["Contents", "Size"], Some(text)) => object.size = text,
                (["Contents", "LastModified"], Some(text)) => object.modified = text,
                (["Contents", "StorageClass"], Some(text)) => object.class = text,
                (["CommonPrefixes", "Prefix"], Some(text)) => page.prefixes.push(text.into_bytes()),
                (["NextContinuationToken"], Some(text)) => page.next = Some(text),
                (["IsTruncated"], Some(text)) => truncated = text == "true",
                (["EncodingType"], Some(text)) => encoded = text == "url",
                _ => {}
            }
        })?;
        if !is_listing {
            return Err("the answer is not a list of objects".to_owned());
        }
        if truncated != page.next.is_some() {
            let what = if truncated { "is truncated, but without" } else { "is complete, but has" };
            return Err(format!("the answer {what} a continuation token"));
        }
        if encoded {
            let keys = page.objects.iter_mut().map(|object| &mut object.key);
            let mut decoded = Vec::new();
            for key in keys.chain(&mut page.prefixes) {
                if decode_key(key, &mut decoded)? {
                    std::mem::swap(key, &mut decoded);
                }
            }
        }
        Ok(page)
    }
}

impl Refusal {
    /// Parses an error; without code and message if it is not one.
    pub(crate) fn decode(xml: &[u8]) -> Self {
        let mut refusal = Self::default();
        let read = read(xml, |path, text| match (path, text) {
            ([root, name], Some(text)) if root == "Error" && name == "Code" => refusal.code = text,
            ([root, name], Some(text)) if root == "Error" && name == "Message" => {
                refusal.message = text;
            }
            _ => {}
        });
        if read.is_ok() { refusal } else { Self::default() }
    }
}

/// Parses XML; calls `element` with the path of each element and its text as it ends, or without
/// text if it has child elements.
fn read(xml: &[u8], mut element: impl FnMut(&[String], Option<String>)) -> Result<(), String> {
    let wrong = |e: &dyn std::fmt::Display| format!("the answer is not XML: {e}");
    let mut reader = Reader::from_reader(xml);
    let (mut path, mut text, mut is_leaf) = (Vec::new(), String::new(), false);
    loop {
        match reader.read_event().map_err(|e| wrong(&e))? {
            Event::Start(start) => {
                if path.len() >= DEPTH_MAX {
                    return Err(wrong(&"it is nested too deeply"));
                }
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                text.clear();
                is_leaf = true;
            }
            Event::Empty(empty) => {
                path.push(String::from_utf8_lossy(empty.local_name().as_ref()).into_owned());
                element(&path, Some(String::new()));
                path.pop();
                is_leaf = false;
            }
            Event::End(_) => {
                element(&path, is_leaf.then(|| std::mem::take(&mut text)));
                path.pop();
                is_leaf = false;
            }
            Event::Text(more) => text += &more.decode().map_err(|e| wrong(&e))?,
            Event::CData(more) => text += &more.decode().map_err(|e| wrong(&e))?,
            Event::GeneralRef(reference) => {
                text.push(character(&reference).map_err(|e| wrong(&e))?)
            }
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err(wrong(&"it ends early")),
            _ => {}
        }
    }
}

/// The character for a reference.
fn character(reference: &BytesRef<'_>) -> Result<char, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|e| e.to_string())? {
        return Ok(character);
    }
    let name: &[u8] = reference.as_ref();
    match name {
        b"lt" => Ok('<'),
        b"gt" => Ok('>'),
        b"amp" => Ok('&'),
        b"apos" => Ok('\''),
        b"quot" => Ok('"'),
        other => Err(format!("unknown reference &{};", String::from_utf8_lossy(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_decoded_with_its_references_and_encoded_keys() {
        let xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"x\">\
            <Name>b</Name><Prefix></Prefix><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>a&amp;b==</NextContinuationToken>\n  <Contents>\n    \
            <Key>a%2Fb+c%2B</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
            <ETag>&quot;x&quot;</ETag><Size>12</Size><StorageClass>GLACIER</StorageClass>\
            <Owner><ID>1</ID></Owner></Contents><Contents><Key>k</Key><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>a/%C3%BC/</Prefix></CommonPrefixes></ListBucketResult>";
        let page = Page::decode(xml.as_bytes()).unwrap();
        assert_eq!(page.next.as_deref(), Some("a&b=="));
        assert_eq!(page.prefixes, ["a/ü/".as_bytes()]);
        let first = &page.objects[0];
        assert_eq!((&first.key[..], first.size.as_str()), (&b"a/b c+"[..], "12"));
        assert_eq!((first.class.as_str(), &first.modified[..4]), ("GLACIER", "2024"));
        assert_eq!((page.objects[1].class.as_str(), page.objects.len()), ("", 2));
        let plain = xml.replace("<EncodingType>url</EncodingType>", "").replace("+", "&#x2b;");
        assert_eq!(Page::decode(plain.as_bytes()).unwrap().objects[0].key, b"a%2Fb+c%2B");
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let wrapped = |inner: &str| format!("<ListBucketResult>{inner}</ListBucketResult>");
        for xml in [
            String::new(),
            "no".to_owned(),
            "<Error><Code>X</Code></Error>".to_owned(),
            "<ListBucketResult><Contents>".to_owned(),
            "<ListBucketResult></Contents>".to_owned(),
            wrapped("<Contents><Key>&nope;</Key></Contents>"),
            wrapped("<IsTruncated>true</IsTruncated>"),
            wrapped("<NextContinuationToken>x</NextContinuationToken>"),
            "<a>".repeat(100),
        ] {
            assert!(Page::decode(xml.as_bytes()).is_err(), "{xml}");
        }
        assert_eq!(Page::decode(wrapped("").as_bytes()), Ok(Page::default()));
        let refusal = Refusal::decode(
            b"<Error><Code>NoSuchBucket</Code><Message>It &lt;is&gt; not</Message></Error>",
        );
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            ("NoSuchBucket", "It <is> not")
        );
        assert_eq!(Refusal::decode(b"<html>"), Refusal::default());
    }
}
