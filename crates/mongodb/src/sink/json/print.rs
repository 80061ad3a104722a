//! BSON documents as JSON: the inverse of [`parse`](super::parse).
//!
//! Invariant: the form is the canonical one of `docs/formats/mongodb-sink.md`, without white space.

use mongodb::bson::{Bson, Document};

use super::{ESCAPES, real_text};

/// The object as JSON; `None` where it has what [`parse`](super::parse) never makes.
pub(crate) fn print(object: &Document) -> Option<Vec<u8>> {
    let mut out = String::new();
    print_object(object, &mut out)?;
    Some(out.into_bytes())
}

fn print_object(object: &Document, out: &mut String) -> Option<()> {
    out.push('{');
    for (index, (key, value)) in object.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(key);
        out.push_str("\":");
        print_value(value, out)?;
    }
    out.push('}');
    Some(())
}

fn print_value(value: &Bson, out: &mut String) -> Option<()> {
    match value {
        Bson::Document(object) => print_object(object, out)?,
        Bson::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                print_value(value, out)?;
            }
            out.push(']');
        }
        Bson::String(text) => {
            out.push('"');
            for c in text.chars() {
                match ESCAPES.iter().find(|(_, plain)| *plain == c) {
                    Some((escape, _)) => out.extend(['\\', *escape]),
                    None => out.push(c),
                }
            }
            out.push('"');
        }
        Bson::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Bson::Null => out.push_str("null"),
        // Some servers and shells store small numbers as int32.
        Bson::Int32(whole) => out.push_str(&whole.to_string()),
        Bson::Int64(whole) => out.push_str(&whole.to_string()),
        Bson::Double(real) => out.push_str(&real_text(*real)),
        _ => return None,
    }
    Some(())
}
