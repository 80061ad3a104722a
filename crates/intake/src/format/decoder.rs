//! Reading fixed-width fields and counted strings from untrusted bytes.

/// Why bytes are not a valid entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error(
        "the entry ends inside {field}: expected {needed} bytes at offset {offset}, found {left}"
    )]
    Short {
        /// Field being read.
        field: &'static str,
        /// Offset in the payload.
        offset: usize,
        /// Bytes the field takes.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A field holds an unknown value.
    #[error("{field} at offset {offset} has the value {found}, which this version does not know")]
    Value {
        /// Field being read.
        field: &'static str,
        /// Offset in the payload.
        offset: usize,
        /// The value found.
        found: u64,
    },
    /// A text field is not UTF-8.
    #[error("{field} at offset {offset} is not UTF-8")]
    Text {
        /// Field being read.
        field: &'static str,
        /// Offset in the payload.
        offset: usize,
    },
    /// A name breaks the rules of names.
    #[error("{field} at offset {offset} is not a valid name")]
    Name {
        /// Field being read.
        field: &'static str,
        /// Offset in the payload.
        offset: usize,
        /// The rule it breaks.
        #[source]
        source: crate::names::NameError,
    },
    /// Bytes are left over after the last field.
    #[error("{left} bytes are left after the last field at offset {offset}")]
    Trailing {
        /// Offset in the payload.
        offset: usize,
        /// Bytes left over.
        left: usize,
    },
}

/// A position in a payload that only moves forward.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn take(
        &mut self,
        field: &'static str,
        size: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let end = self.offset.checked_add(size);
        match end.and_then(|end| self.bytes.get(self.offset..end)) {
            Some(taken) => {
                self.offset += size;
                Ok(taken)
            }
            None => Err(DecodeError::Short {
                field,
                offset: self.offset,
                needed: size,
                left: self.left(),
            }),
        }
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.take(field, N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }

    /// Bytes preceded by a 32-bit length.
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let size = self.u32(field)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.take(field, size)
    }

    /// UTF-8 preceded by a 16-bit length.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let offset = self.offset;
        let size = self.u16(field)?;
        std::str::from_utf8(self.take(field, usize::from(size))?)
            .map_err(|_| DecodeError::Text { field, offset })
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        self.offset = self.bytes.len();
        rest
    }

    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing { offset: self.offset, left }),
        }
    }
}
