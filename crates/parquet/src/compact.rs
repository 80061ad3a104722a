//! Thrift's compact protocol, as far as it is needed to look at structures before they are decoded.
//!
//! Nothing is allocated, and a list with more elements than there are bytes left is refused.
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

/// Structures and lists within each other.
const DEPTH_MAX: usize = 32;

/// Types of fields.
pub(crate) const I32: u8 = 5;
pub(crate) const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
pub(crate) const STRUCT: u8 = 12;

/// Why bytes cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// They end too early.
    Short,
    /// They are something else.
    Wrong,
}

type Result<T> = std::result::Result<T, Unfit>;

/// Bytes that are looked at from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compact<'a> {
    rest: &'a [u8],
}

impl<'a> Compact<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that were not looked at.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or(Unfit::Short)?;
        self.rest = rest;
        Ok(byte)
    }

    /// An unsigned number, seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unfit::Wrong)
    }

    /// A signed number, its sign in the lowest bit.
    pub(crate) fn signed(&mut self) -> Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A number that is a count or a size.
    pub(crate) fn size(&mut self) -> Result<u64> {
        u64::try_from(self.signed()?).map_err(|_| Unfit::Wrong)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = usize::try_from(self.varint()?).map_err(|_| Unfit::Wrong)?;
        let (bytes, rest) = self.rest.split_at_checked(size).ok_or(Unfit::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next field of a structure, as its id and type; nothing at the end. `last`: the id of the field
    /// before, 0 at first.
    pub(crate) fn field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>> {
        let head = self.byte()?;
        let kind = head & 0x0f;
        if kind == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.signed()?,
            step => last.saturating_add(i64::from(step)),
        };
        Ok(Some((*last, kind)))
    }

    /// The head of a list: the type and number of its elements, of which each takes a byte at least.
    pub(crate) fn list(&mut self) -> Result<(u8, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Unfit::Wrong)?,
            count => usize::from(count),
        };
        if count > self.left() {
            return Err(Unfit::Short);
        }
        Ok((head & 0x0f, count))
    }

    /// Passes over the value of a field.
    pub(crate) fn skip(&mut self, kind: u8) -> Result<()> {
        self.pass(kind, false, DEPTH_MAX)
    }

    fn pass(&mut self, kind: u8, in_list: bool, depth: usize) -> Result<()> {
        let depth = depth.checked_sub(1).ok_or(Unfit::Wrong)?;
        match kind {
            // A truth is in the type of its field; in a list it is a byte.
            1 | 2 if !in_list => Ok(()),
            1..=3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.take(8),
            BINARY => self.bytes().map(drop),
            LIST | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.pass(kind, true, depth))
            }
            11 => self.pass_map(depth),
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.pass(kind, false, depth)?;
                }
                Ok(())
            }
            13 => self.take(16),
            _ => Err(Unfit::Wrong),
        }
    }

    fn pass_map(&mut self, depth: usize) -> Result<()> {
        let count = usize::try_from(self.varint()?).map_err(|_| Unfit::Wrong)?;
        if count == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        if count > self.left() {
            return Err(Unfit::Short);
        }
        (0..count).try_for_each(|_| {
            self.pass(kinds >> 4, true, depth)?;
            self.pass(kinds & 0x0f, true, depth)
        })
    }

    fn take(&mut self, size: usize) -> Result<()> {
        self.rest = self.rest.get(size..).ok_or(Unfit::Short)?;
        Ok(())
    }
}
