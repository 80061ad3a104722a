//! The pages of a column, one after the other, each checked before it is read and again before it is
//! decoded.
//!
//! The `parquet` crate's own reader makes room for what a header declares and expands without an end; this
//! one takes its place, and gives the same pages.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;

use crate::codec::Codec;
use crate::compact::Unfit;
use crate::delta::Lengths;
use crate::error::{Exceeded, What, damaged};
use crate::header::{Header, Kind, V2, Values};
use crate::leaf::Leaf;
use crate::meter::{At, Meter};

/// Bytes that are read where a header begins: most take less.
const HEADER_SIZE: u64 = 256;
/// Bytes of a header at most. What makes one long are statistics.
const HEADER_SIZE_MAX: u64 = 16 << 20;

/// Reads the pages of a column of a row group.
pub(crate) struct Pages<R> {
    chunks: Arc<R>,
    meter: Arc<Meter>,
    leaf: Leaf,
    row_group: usize,
    /// Rows of a batch at most.
    rows: u64,
    at: u64,
    end: u64,
    /// Values that the pages to come may have.
    values_left: u64,
    next: Option<Header>,
    page: usize,
    codec: Codec,
    /// Bytes of the dictionary and of the page that was read last.
    dictionary: u64,
    current: u64,
    /// The longest text of the dictionary.
    longest: u64,
}

fn unfit(_: Unfit) -> ParquetError {
    damaged("a page does not match its header")
}

fn refused(exceeded: Exceeded) -> ParquetError {
    ParquetError::External(Box::new(exceeded))
}

impl<R: ChunkReader> Pages<R> {
    pub(crate) fn new(
        chunks: Arc<R>,
        meter: Arc<Meter>,
        leaf: Leaf,
        (row_group, metadata): (usize, &RowGroupMetaData),
        rows: usize,
    ) -> Result<Self> {
        let place =
            |what: &str| damaged(format!("row group {row_group}, column {:?}: {what}", leaf.path));
        let column =
            metadata.columns().get(leaf.index).ok_or_else(|| place("it does not exist"))?;
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let start = u64::try_from(start).ok();
        let size = u64::try_from(column.compressed_size()).ok();
        let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
        let (Some(at), Some(end)) = (start, end.filter(|&end| end <= chunks.len())) else {
            return Err(place("it exceeds the file"));
        };
        let values = u64::try_from(column.num_values()).ok();
        let fits =
            |&values: &u64| leaf.is_repeated() || i64::try_from(values) == Ok(metadata.num_rows());
        let Some(values_left) = values.filter(fits) else {
            let (values, rows) = (column.num_values(), metadata.num_rows());
            return Err(place(&format!("it declares {values} values in {rows} rows")));
        };
        let codec = Codec::new(column.compression())?;
        let rows = rows as u64;
        Ok(Self {
            chunks,
            meter,
            leaf,
            row_group,
            rows,
            at,
            end,
            values_left,
            next: None,
            page: 0,
            codec,
            dictionary: 0,
            current: 0,
            longest: 0,
        })
    }

    /// The header of the next page that has values.
    fn header(&mut self) -> Result<Option<Header>> {
        if let Some(header) = self.next {
            return Ok(Some(header));
        }
        while self.at < self.end {
            let (header, size) = self.read_header()?;
            self.at += size as u64;
            if u64::from(header.stored) > self.end - self.at {
                return Err(self.wrong("it exceeds its column"));
            }
            if header.kind != Kind::Other {
                self.next = Some(header);
                return Ok(Some(header));
            }
            self.at += u64::from(header.stored);
        }
        Ok(None)
    }

    fn read_header(&self) -> Result<(Header, usize)> {
        let left = self.end - self.at;
        let mut size = HEADER_SIZE;
        loop {
            let ahead = size.min(left);
            let length = usize::try_from(ahead).map_err(|e| ParquetError::External(e.into()))?;
            match Header::read(&self.chunks.get_bytes(self.at, length)?) {
                Ok(read) => return Ok(read),
                Err(Unfit::Short) if ahead < left && size < HEADER_SIZE_MAX => {
                    size *= 8;
                    self.admit(What::Page, size)?;
                }
                Err(_) => return Err(self.wrong("its header is damaged")),
            }
        }
    }

    fn at(&self) -> At<'_> {
        At { row_group: self.row_group, column: &self.leaf.path, page: self.page }
    }

    fn wrong(&self, what: &str) -> ParquetError {
        let Self { row_group, leaf, page, .. } = self;
        damaged(format!("row group {row_group}, column {:?}, page {page}: {what}", leaf.path))
    }

    fn admit(&self, what: What, declared: u64) -> Result<()> {
        self.meter.admit(what, self.at(), declared).map_err(refused)
    }

    /// Bytes of a page in memory, with those it is read from.
    fn declared(&self, header: &Header) -> u64 {
        let (stored, expanded) = (u64::from(header.stored), u64::from(header.expanded));
        if self.codec.is_none() { stored.max(expanded) } else { stored.saturating_add(expanded) }
    }

    /// Reads the bytes of a page. `plain`: as many at its front are never compressed.
    fn expand(&mut self, header: &Header, plain: u32, is_plain: bool) -> Result<Bytes> {
        let stored = self.chunks.get_bytes(self.at, header.stored as usize)?;
        if self.codec.is_none() || is_plain {
            return Ok(stored);
        }
        let fits = plain <= header.expanded;
        let parts = stored.split_at_checked(plain as usize).filter(|_| fits);
        let (levels, rest) =
            parts.ok_or_else(|| self.wrong("its levels are larger than the page"))?;
        let mut bytes = Vec::with_capacity(header.expanded as usize);
        bytes.extend_from_slice(levels);
        let size = (header.expanded - plain) as usize;
        let expanded = self.codec.expand(rest, &mut bytes, size);
        expanded.map_err(|error| self.wrong(&error.to_string()))?;
        Ok(bytes.into())
    }

    fn dictionary_page(&mut self, header: &Header, values: Values) -> Result<Page> {
        let buf = self.expand(header, 0, false)?;
        let (count, size) = (u64::from(values.count), buf.len() as u64);
        let is_text = self.leaf.physical == Physical::BYTE_ARRAY;
        // A text takes its length at least.
        let least = if is_text { 4 } else { self.leaf.stored.max(1) };
        if count.saturating_mul(least) > size {
            return Err(self.wrong(&format!("it declares {count} values in {size} bytes")));
        }
        let of_value = if is_text { 32 } else { self.leaf.stored };
        let decoded = count.saturating_mul(of_value);
        self.admit(What::Values, size.saturating_add(decoded))?;
        self.longest = if is_text { longest(&buf) } else { 0 };
        let now = size.saturating_add(decoded);
        let held = if self.leaf.is_view { self.dictionary } else { 0 };
        self.meter.keep(self.dictionary, now, held, 0);
        self.dictionary = now;
        Ok(Page::DictionaryPage {
            buf,
            num_values: values.count,
            encoding: values.encoding,
            is_sorted: false,
        })
    }

    fn data_page(&mut self, header: &Header, values: Values, v2: Option<V2>) -> Result<Page> {
        let count = u64::from(values.count);
        self.values_left = self.values_left.checked_sub(count).ok_or_else(|| {
            self.wrong(&format!("it declares {count} values, more than remain in its column"))
        })?;
        let levels = match v2 {
            None => 0,
            Some(v2) => v2
                .def_levels_size
                .checked_add(v2.rep_levels_size)
                .ok_or_else(|| self.wrong("its levels are larger than the page"))?,
        };
        // All values of a page may be of one row.
        let mut decoded = match self.leaf.is_repeated() {
            true => count.saturating_mul(self.leaf.decoded()),
            false => 0,
        };
        if self.is_of_dictionary(values.encoding) && !self.leaf.is_view {
            let together = if self.leaf.is_repeated() { count } else { count.min(self.rows) };
            decoded = decoded.saturating_add(together.saturating_mul(self.longest));
        }
        self.admit(What::Values, self.declared(header).saturating_add(decoded))?;
        let buf = self.expand(header, levels, v2.is_some_and(|v2| v2.is_plain))?;
        let size = buf.len() as u64;
        let of_lengths = self.lengths(&buf, values, v2, size.saturating_add(decoded))?;
        let held = if self.leaf.is_view { self.current } else { 0 };
        let now = size.saturating_add(of_lengths.0);
        self.meter.keep(self.current, now, held, decoded.saturating_add(of_lengths.1));
        self.current = now;
        Ok(page(buf, values, v2))
    }

    fn is_of_dictionary(&self, encoding: Encoding) -> bool {
        let is = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        is && self.leaf.physical == Physical::BYTE_ARRAY
    }

    /// Bytes that lengths in a page take while it is read, and those that its texts are made into.
    fn lengths(
        &self,
        page: &[u8],
        values: Values,
        v2: Option<V2>,
        held: u64,
    ) -> Result<(u64, u64)> {
        let shares = match values.encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => false,
            Encoding::DELTA_BYTE_ARRAY => true,
            _ => return Ok((0, 0)),
        };
        let bytes = self.behind_levels(page, values, v2)?;
        let admit = |lengths: &Lengths<'_>, before: u64| {
            if lengths.count > u64::from(values.count) {
                let (found, count) = (lengths.count, values.count);
                return Err(self.wrong(&format!("it has {found} lengths for {count} values")));
            }
            let size = lengths.count.saturating_mul(4);
            self.admit(What::Values, held.saturating_add(before).saturating_add(size))?;
            Ok(size)
        };
        let first = Lengths::new(bytes).map_err(unfit)?;
        let size = admit(&first, 0)?;
        if !shares {
            return Ok((size, 0));
        }
        let (shared, rest) = first.sum().map_err(unfit)?;
        let second = Lengths::new(rest).map_err(unfit)?;
        let size = size + admit(&second, size)?;
        let own = second.sum().map_err(unfit)?.0;
        let texts = shared.saturating_add(own);
        self.admit(What::Values, held.saturating_add(size).saturating_add(texts))?;
        Ok((size, texts))
    }

    /// The values of a page, behind the levels.
    fn behind_levels<'a>(
        &self,
        page: &'a [u8],
        values: Values,
        v2: Option<V2>,
    ) -> Result<&'a [u8]> {
        let short = || self.wrong("its levels are larger than the page");
        if let Some(v2) = v2 {
            let levels = v2.def_levels_size as usize + v2.rep_levels_size as usize;
            return page.get(levels..).ok_or_else(short);
        }
        let levels = [
            (self.leaf.max_rep_level, values.rep_levels),
            (self.leaf.max_def_level, values.def_levels),
        ];
        let mut rest = page;
        for (max, encoding) in levels {
            if max == 0 {
                continue;
            }
            if encoding != Encoding::RLE {
                return Err(
                    self.wrong("the encodings of its levels and its values contradict each other")
                );
            }
            let (size, after) = rest.split_first_chunk::<4>().ok_or_else(short)?;
            rest = after.get(u32::from_le_bytes(*size) as usize..).ok_or_else(short)?;
        }
        Ok(rest)
    }
}

/// The longest of texts that stand behind their lengths.
fn longest(mut page: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = page.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(u64::from(length));
        page = rest.get(length as usize..).unwrap_or_default();
    }
    longest
}

fn page(buf: Bytes, values: Values, v2: Option<V2>) -> Page {
    match v2 {
        None => Page::DataPage {
            buf,
            num_values: values.count,
            encoding: values.encoding,
            def_level_encoding: values.def_levels,
            rep_level_encoding: values.rep_levels,
            statistics: None,
        },
        Some(v2) => Page::DataPageV2 {
            buf,
            num_values: values.count,
            encoding: values.encoding,
            num_nulls: v2.nulls,
            num_rows: v2.rows,
            def_levels_byte_len: v2.def_levels_size,
            rep_levels_byte_len: v2.rep_levels_size,
            is_compressed: !v2.is_plain,
            statistics: None,
        },
    }
}

impl<R> Drop for Pages<R> {
    fn drop(&mut self) {
        // The batch may hold on to them; the column does not.
        let (kept, held) = (self.dictionary + self.current, self.leaf.is_view);
        self.meter.keep(kept, 0, if held { kept } else { 0 }, 0);
    }
}

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(header) = self.header()? else { return Ok(None) };
        self.admit(What::Page, self.declared(&header))?;
        let page = match header.kind {
            Kind::Dictionary(values) => self.dictionary_page(&header, values)?,
            Kind::Data(values) => self.data_page(&header, values, None)?,
            Kind::DataV2(values, v2) => self.data_page(&header, values, Some(v2))?,
            // `header` passes over others.
            Kind::Other => return Ok(None),
        };
        self.next = None;
        self.at += u64::from(header.stored);
        self.page += 1;
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Ok(self.header()?.map(|header| {
            let (num_rows, num_levels, is_dict) = match header.kind {
                Kind::Data(values) => (None, Some(values.count as usize), false),
                Kind::DataV2(values, v2) => {
                    (Some(v2.rows as usize), Some(values.count as usize), false)
                }
                Kind::Dictionary(_) | Kind::Other => (None, None, true),
            };
            PageMetadata { num_rows, num_levels, is_dict }
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if let Some(header) = self.header()? {
            self.next = None;
            self.at += u64::from(header.stored);
            self.page += 1;
        }
        Ok(())
    }
}
