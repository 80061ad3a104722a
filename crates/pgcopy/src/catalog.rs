//! From a type in a server's catalogue to its form on the wire.

use crate::column::Wire;

/// A type, as `pg_type` has it, with those it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgType {
    /// Its number: below 16,384 the same on every server.
    pub oid: u32,
    /// As `format_type` writes it, with its modifier.
    pub name: String,
    /// `typtype`: `b` base, `c` composite, `d` domain, `e` enum, `m` multirange, `p` pseudo, `r` range.
    pub typtype: char,
    /// `typcategory`: `S` for texts, `A` for arrays.
    pub category: char,
    /// Of a domain: the type it restricts.
    pub basetype: Option<Box<PgType>>,
    /// Of an array: the type of its elements.
    pub element: Option<Box<PgType>>,
    /// `atttypmod`, or `typtypmod` of a domain: length, precision; -1 for none.
    pub typmod: i32,
}

/// The largest precision a decimal of Arrow has.
const PRECISION_MAX: i32 = 76;

/// The form of a type's values.
///
/// * `is_opaque`: types Arrow has no form for are wanted as the server's own bytes. Otherwise they are
///   [`Wire::Text`], and the query to the server casts them to text.
#[must_use]
pub fn wire(of: &PgType, is_opaque: bool) -> Wire {
    known(of).unwrap_or(if is_opaque { Wire::Opaque } else { Wire::Text })
}

/// The form of a type that Arrow has one for.
fn known(of: &PgType) -> Option<Wire> {
    if let Some(base) = &of.basetype {
        return known(base);
    }
    if of.typtype == 'e' {
        return Some(Wire::Text);
    }
    // int2vector and oidvector are arrays that begin at 0, which no list does.
    if matches!(of.oid, 22 | 30) {
        return None;
    }
    if let Some(element) = &of.element {
        return array(element);
    }
    // Numbers of built-in types: pg_type.dat of PostgreSQL.
    Some(match of.oid {
        16 => Wire::Bool,
        17 => Wire::Bytes,
        20 => Wire::Int8,
        21 => Wire::Int2,
        23 => Wire::Int4,
        // name, text, json, xml, unknown, bpchar, varchar
        19 | 25 | 114 | 142 | 705 | 1042 | 1043 => Wire::Text,
        // oid, xid, cid, and the names of things that are sent as their numbers
        26 | 28 | 29 | 24 | 2202..=2206 | 3734 | 3769 | 4089 | 4096 | 4191 => Wire::Oid,
        650 => Wire::Cidr,
        700 => Wire::Float4,
        701 => Wire::Float8,
        774 => Wire::MacAddr { bytes: 8 },
        790 => Wire::Money,
        829 => Wire::MacAddr { bytes: 6 },
        869 => Wire::Inet,
        1082 => Wire::Date,
        1083 => Wire::Time,
        1114 => Wire::Timestamp,
        1184 => Wire::TimestampTz,
        1186 => Wire::Interval,
        1266 => Wire::TimeTz,
        1560 | 1562 => Wire::Bits,
        1700 => numeric(of.typmod),
        2950 => Wire::Uuid,
        3802 => Wire::Jsonb,
        // "char": one byte of any value, though servers before 15 count it among the texts.
        18 => return None,
        // Texts of extensions (citext) are sent as text.
        _ if of.typtype == 'b' && of.category == 'S' => Wire::Text,
        _ => return None,
    })
}

/// A built-in type that holds every value of this form, as `format_type` writes it, and the form its values
/// have: an array says which type its elements are of. `None` where there is none that surely does.
///
/// ```
/// use forebay_pgcopy::{Wire, catalog};
///
/// let of_an_enum = Wire::Array { element: Box::new(Wire::Text), element_oid: 16_389 };
/// let texts = Wire::Array { element: Box::new(Wire::Text), element_oid: 25 };
/// assert_eq!(catalog::built_in(&of_an_enum), Some(("text[]".to_owned(), texts)));
/// assert_eq!(catalog::built_in(&Wire::Opaque), None);
/// ```
#[must_use]
pub fn built_in(of: &Wire) -> Option<(String, Wire)> {
    let Wire::Array { element, .. } = of else {
        return Some((name_of(of)?, of.clone()));
    };
    let name = name_of(element)?;
    let element_oid = oid_of(&name)?;
    Some((format!("{name}[]"), Wire::Array { element: element.clone(), element_oid }))
}

/// Of a type that is no array.
fn name_of(of: &Wire) -> Option<String> {
    let name = match of {
        Wire::Decimal { precision, scale } => return Some(format!("numeric({precision},{scale})")),
        Wire::Bool => "boolean",
        Wire::Bytes => "bytea",
        Wire::Int8 => "bigint",
        Wire::Int2 => "smallint",
        Wire::Int4 => "integer",
        Wire::Text => "text",
        Wire::Float4 => "real",
        Wire::Float8 => "double precision",
        Wire::Date => "date",
        Wire::Timestamp => "timestamp without time zone",
        Wire::TimestampTz => "timestamp with time zone",
        Wire::Numeric => "numeric",
        Wire::Uuid => "uuid",
        Wire::Jsonb => "jsonb",
        _ => return None,
    };
    Some(name.to_owned())
}

/// The OID of a built-in type by its name as `format_type` writes it, the same on every server
/// (`pg_type.dat`). Several types have the same form on the wire, but an array has the OID of its
/// elements' type, and the server refuses another.
///
/// ```
/// use forebay_pgcopy::catalog::oid_of;
///
/// assert_eq!(oid_of("character varying(10)"), Some(1043));
/// assert_eq!(oid_of("mood"), None);
/// ```
#[must_use]
pub fn oid_of(name: &str) -> Option<u32> {
    let word = name.split_once('(').map_or(name, |(word, _)| word);
    Some(match word {
        "boolean" => 16,
        "bytea" => 17,
        "bigint" => 20,
        "smallint" => 21,
        "integer" => 23,
        "text" => 25,
        "oid" => 26,
        "json" => 114,
        "cidr" => 650,
        "real" => 700,
        "double precision" => 701,
        "inet" => 869,
        "character" => 1042,
        "character varying" => 1043,
        "date" => 1082,
        "time without time zone" => 1083,
        "timestamp without time zone" => 1114,
        "timestamp with time zone" => 1184,
        "interval" => 1186,
        "time with time zone" => 1266,
        "numeric" => 1700,
        "uuid" => 2950,
        "jsonb" => 3802,
        _ => return None,
    })
}

/// An array, where its elements have a form. Those of a domain have that of its base; what the domain
/// checks is for the server.
fn array(element: &PgType) -> Option<Wire> {
    let wire = known(element)?;
    match wire {
        Wire::Array { .. } | Wire::Opaque => None,
        wire => Some(Wire::Array { element: Box::new(wire), element_oid: element.oid }),
    }
}

/// `numeric(p, s)`: the modifier is 4 more than `p << 16 | s`, `s` of eleven bits with a sign.
fn numeric(typmod: i32) -> Wire {
    if typmod < 4 {
        return Wire::Numeric;
    }
    let packed = typmod - 4;
    let (precision, scale) = (packed >> 16, ((packed & 0x7ff) ^ 1024) - 1024);
    if precision > PRECISION_MAX || scale < 0 || scale > precision {
        return Wire::Numeric;
    }
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision), Ok(scale)) => Wire::Decimal { precision, scale },
        _ => Wire::Numeric,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(oid: u32, category: char, typmod: i32) -> PgType {
        let name = String::new();
        PgType { oid, name, typtype: 'b', category, basetype: None, element: None, typmod }
    }

    #[test]
    fn numerics_that_fit_are_decimals_and_others_are_text() {
        let numeric = |precision: i32, scale: i32| {
            wire(&base(1700, 'N', (precision << 16 | (scale & 0x7ff)) + 4), true)
        };
        assert_eq!(numeric(12, 3), Wire::Decimal { precision: 12, scale: 3 });
        assert_eq!(numeric(76, 0), Wire::Decimal { precision: 76, scale: 0 });
        assert_eq!(numeric(77, 0), Wire::Numeric);
        assert_eq!(numeric(3, -2), Wire::Numeric);
        assert_eq!(numeric(2, 5), Wire::Numeric);
        assert_eq!(wire(&base(1700, 'N', -1), true), Wire::Numeric);
    }

    #[test]
    fn a_built_in_type_for_a_form_has_that_form() {
        for oid in [16, 17, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184, 1700, 2950, 3802] {
            let form = wire(&base(oid, ' ', -1), true);
            let name = name_of(&form).unwrap();
            assert_eq!(oid_of(&name), Some(oid), "{form:?}");
            assert_eq!(built_in(&form).map(|(_, form)| form), Some(form));
        }
    }

    #[test]
    fn domains_are_their_base_and_arrays_know_their_elements() {
        let mut domain = base(99_999, 'N', -1);
        domain.typtype = 'd';
        domain.basetype = Some(Box::new(base(23, 'N', -1)));
        assert_eq!(wire(&domain, true), Wire::Int4);
        let mut array = base(1007, 'A', -1);
        array.element = Some(Box::new(base(23, 'N', -1)));
        let of_int4 = Wire::Array { element: Box::new(Wire::Int4), element_oid: 23 };
        assert_eq!(wire(&array, true), of_int4);
        array.element = Some(Box::new(base(600, 'G', -1)));
        assert_eq!(wire(&array, true), Wire::Opaque);
        assert_eq!(wire(&array, false), Wire::Text);
        let mut vector = base(22, 'A', -1);
        vector.element = Some(Box::new(base(21, 'N', -1)));
        assert_eq!(wire(&vector, true), Wire::Opaque);
    }
}
