//! The header of a page: what it declares of the bytes behind it.
//!
//! Of the structures in `parquet.thrift` only what is needed to read the page; statistics are passed over.

use parquet::basic::Encoding;

use crate::compact::{Compact, I32, STRUCT, Unfit};

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data(Values),
    DataV2(Values, V2),
    Dictionary(Values),
    /// Something that is passed over.
    Other,
}

/// How many values a page has, NULL among them, and how they are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) count: u32,
    pub(crate) encoding: Encoding,
    pub(crate) def_levels: Encoding,
    pub(crate) rep_levels: Encoding,
}

/// What a header of version 2 says besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct V2 {
    pub(crate) nulls: u32,
    pub(crate) rows: u32,
    pub(crate) def_levels_size: u32,
    pub(crate) rep_levels_size: u32,
    pub(crate) is_plain: bool,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes behind the header.
    pub(crate) stored: u32,
    /// Bytes they expand to.
    pub(crate) expanded: u32,
}

/// Numbers of a structure by their field, none of them negative.
#[derive(Debug, Default)]
struct Numbers {
    found: [Option<u32>; 9],
    /// A field that is false where it stands; `is_compressed` is field 7.
    is_false: Option<i64>,
}

impl Numbers {
    fn read(bytes: &mut Compact<'_>) -> Result<Self, Unfit> {
        let mut numbers = Self::default();
        let mut last = 0;
        while let Some((id, kind)) = bytes.field(&mut last)? {
            if kind == 2 {
                numbers.is_false = Some(id);
            }
            let place = usize::try_from(id).ok().and_then(|id| numbers.found.get_mut(id));
            match place {
                Some(place) if kind == I32 => *place = Some(number(bytes)?),
                _ => bytes.skip(kind)?,
            }
        }
        Ok(numbers)
    }

    fn need(&self, id: usize) -> Result<u32, Unfit> {
        self.found.get(id).copied().flatten().ok_or(Unfit::Wrong)
    }

    /// Values, by the fields that have them.
    fn values(&self, encoding: usize, levels: Option<(usize, usize)>) -> Result<Values, Unfit> {
        let of = |id| self.need(id).and_then(known_encoding);
        let (def_levels, rep_levels) = match levels {
            Some((def, rep)) => (of(def)?, of(rep)?),
            None => (Encoding::RLE, Encoding::RLE),
        };
        Ok(Values { count: self.need(1)?, encoding: of(encoding)?, def_levels, rep_levels })
    }
}

fn number(bytes: &mut Compact<'_>) -> Result<u32, Unfit> {
    // More than an i32 holds is no size; the format's numbers are signed.
    i32::try_from(bytes.size()?).map(i32::cast_unsigned).map_err(|_| Unfit::Wrong)
}

fn known_encoding(number: u32) -> Result<Encoding, Unfit> {
    #[expect(deprecated, reason = "old files have them")]
    Ok(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return Err(Unfit::Wrong),
    })
}

impl Header {
    /// Reads a header at the front of `bytes`, and says how many of them it has.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, usize), Unfit> {
        let mut rest = Compact::new(bytes);
        let (mut kind, mut stored, mut expanded) = (None, None, None);
        let (mut data, mut dictionary, mut v2) = (None, None, None);
        let mut last = 0;
        while let Some((id, of)) = rest.field(&mut last)? {
            match (id, of) {
                (1, I32) => kind = Some(number(&mut rest)?),
                (2, I32) => expanded = Some(number(&mut rest)?),
                (3, I32) => stored = Some(number(&mut rest)?),
                (5, STRUCT) => data = Some(Numbers::read(&mut rest)?),
                (7, STRUCT) => dictionary = Some(Numbers::read(&mut rest)?),
                (8, STRUCT) => v2 = Some(Numbers::read(&mut rest)?),
                _ => rest.skip(of)?,
            }
        }
        let kind = match (kind.ok_or(Unfit::Wrong)?, data, dictionary, v2) {
            (0, Some(data), ..) => Kind::Data(data.values(2, Some((3, 4)))?),
            (2, _, Some(dictionary), _) => Kind::Dictionary(dictionary.values(2, None)?),
            (3, .., Some(v2)) => {
                let more = V2 {
                    nulls: v2.need(2)?,
                    rows: v2.need(3)?,
                    def_levels_size: v2.need(5)?,
                    rep_levels_size: v2.need(6)?,
                    is_plain: v2.is_false == Some(7),
                };
                Kind::DataV2(v2.values(4, None)?, more)
            }
            (0 | 2 | 3, ..) => return Err(Unfit::Wrong),
            _ => Kind::Other,
        };
        let header = Self {
            kind,
            stored: stored.ok_or(Unfit::Wrong)?,
            expanded: expanded.ok_or(Unfit::Wrong)?,
        };
        Ok((header, bytes.len() - rest.left()))
    }
}
