//! Converts the columns of a batch to objects: column by column, then row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::file::{Layout, ParquetFile};
use super::text::Texts;
use crate::object::{Batch, ClassId, Kind, Month, Object};
use crate::source::values::{self, ClassNames};
use crate::source::{BadRow, RowSink, SourceError};

const MS_PER_DAY: i64 = 86_400_000;

/// Converts batches to objects.
pub(super) struct Decoder {
    file: Arc<ParquetFile>,
    classes: ClassNames,
    /// Number of rows before the batch.
    row: u64,
    columns: Decoded,
    objects: Batch,
}

/// The fields of a batch, one per row, except the keys.
#[derive(Default)]
struct Decoded {
    sizes: Vec<u64>,
    months: Vec<Month>,
    classes: Vec<ClassId>,
    kinds: Vec<Kind>,
    versions: Vec<u64>,
    /// Faulty rows, with the index of the column and the fault; the first of each row.
    bad: BTreeMap<usize, (usize, String)>,
}

impl Decoder {
    pub(super) fn new(file: &Arc<ParquetFile>, first_row: u64) -> Self {
        Self {
            file: Arc::clone(file),
            classes: ClassNames::new(Arc::clone(&file.settings.classes)),
            row: first_row,
            columns: Decoded::default(),
            objects: Batch::default(),
        }
    }

    /// Passes the objects of a batch to `sink`, and reports the invalid rows.
    pub(super) fn decode(
        &mut self,
        layout: &Layout,
        batch: &RecordBatch,
        sink: &mut dyn RowSink,
    ) -> Result<(), SourceError> {
        self.columns.clear();
        let rows = batch.num_rows();
        let unfit = |place: usize, what: &str| {
            let name = layout.names.get(place).cloned().unwrap_or_default();
            let kind = batch.columns().get(place).map(|column| column.data_type().to_string());
            let reason =
                format!("its column {name:?} is of type {}, not {what}", kind.unwrap_or_default());
            SourceError::Column { file: self.file.name.clone(), reason }
        };
        let columns = batch.columns();
        let at = |place: Option<usize>| place.and_then(|at| Some((at, columns.get(at)?)));
        let (decoded, places) = (&mut self.columns, &layout.places);

        let keys = columns.get(places.key).and_then(Texts::new);
        let keys = keys.ok_or_else(|| unfit(places.key, "text"))?;
        decoded.kinds(rows, at(places.is_latest), at(places.is_delete_marker));
        let decodes = at(Some(places.size)).is_some_and(|(at, column)| decoded.sizes(at, column));
        if !decodes {
            return Err(unfit(places.size, "a number"));
        }
        if let Some((at, column)) = at(places.last_modified)
            && !decoded.months(at, column)
        {
            return Err(unfit(at, "a date or a timestamp; exclude it with last_modified=-"));
        }
        let tiers = at(places.tier);
        if let Some(at) = decoded.classes(rows, at(places.class), tiers, &mut self.classes) {
            return Err(unfit(at, "text"));
        }
        if let Some((at, column)) = at(places.version_id)
            && !decoded.versions(column)
        {
            return Err(unfit(at, "text"));
        }
        for place in [places.is_latest, places.is_delete_marker].into_iter().flatten() {
            if columns.get(place).is_some_and(|column| Booleans::new(column).is_none()) {
                return Err(unfit(place, "true or false"));
            }
        }
        self.push(rows, &keys, layout, sink)
    }

    /// Combines the fields of each row.
    fn push(
        &mut self,
        rows: usize,
        keys: &Texts<'_>,
        layout: &Layout,
        sink: &mut dyn RowSink,
    ) -> Result<(), SourceError> {
        let first_row = self.row;
        self.row = first_row.saturating_add(rows as u64);
        let any_bad = !self.columns.bad.is_empty();
        for row in 0..rows {
            let fault = if any_bad { self.columns.bad.remove(&row) } else { None };
            let fault = match (fault, keys.get(row)) {
                (None, Some(key)) => {
                    if self.objects.push(key, self.columns.object(row)).is_err() {
                        // No capacity: the collected objects are passed on first.
                        sink.rows(&mut self.objects)?;
                        let pushed = self.objects.push(key, self.columns.object(row));
                        pushed.err().map(|full| (layout.places.key, full.to_string()))
                    } else {
                        None
                    }
                }
                (None, None) => Some((layout.places.key, "there is no key".to_owned())),
                (fault, _) => fault,
            };
            if let Some((place, reason)) = fault {
                sink.bad_row(BadRow {
                    part: self.file.name.clone(),
                    row: first_row.saturating_add(row as u64).saturating_add(1),
                    field: layout.names.get(place).cloned().unwrap_or_default(),
                    reason,
                })?;
            }
        }
        if !self.objects.is_empty() {
            sink.rows(&mut self.objects)?;
        }
        Ok(())
    }
}

impl Decoded {
    fn clear(&mut self) {
        self.sizes.clear();
        self.months.clear();
        self.classes.clear();
        self.kinds.clear();
        self.versions.clear();
        self.bad.clear();
    }

    /// The object of a row; missing columns have no values.
    #[inline]
    fn object(&self, row: usize) -> Object {
        Object {
            size: self.sizes.get(row).copied().unwrap_or_default(),
            version: self.versions.get(row).copied().unwrap_or_default(),
            modified: self.months.get(row).copied().unwrap_or_default(),
            class: self.classes.get(row).copied().unwrap_or(ClassId::STANDARD),
            kind: self.kinds.get(row).copied().unwrap_or(Kind::Current),
        }
    }

    /// Version kinds, from boolean columns; the caller reports columns of other types.
    fn kinds(
        &mut self,
        rows: usize,
        latest: Option<(usize, &ArrayRef)>,
        marker: Option<(usize, &ArrayRef)>,
    ) {
        if latest.is_none() && marker.is_none() {
            return;
        }
        let bad = &mut self.bad;
        let mut truth = |column: Option<&(usize, Booleans<'_>)>, row| {
            let (at, column) = column?;
            column.get(row).unwrap_or_else(|reason| {
                bad.entry(row).or_insert((*at, reason));
                None
            })
        };
        let (latest, marker) = (Booleans::at(latest), Booleans::at(marker));
        self.kinds.extend(
            (0..rows)
                .map(|row| values::kind(truth(latest.as_ref(), row), truth(marker.as_ref(), row))),
        );
    }

    /// Sizes; returns whether the column can contain any.
    fn sizes(&mut self, at: usize, column: &ArrayRef) -> bool {
        match column.data_type() {
            DataType::Int64 => self.numbers::<Int64Type>(at, column, values::size_from_i64),
            DataType::Int32 => {
                self.numbers::<Int32Type>(at, column, |n| values::size_from_i64(n.into()))
            }
            DataType::Int16 => {
                self.numbers::<Int16Type>(at, column, |n| values::size_from_i64(n.into()))
            }
            DataType::Int8 => {
                self.numbers::<Int8Type>(at, column, |n| values::size_from_i64(n.into()))
            }
            DataType::UInt64 => {
                self.numbers::<UInt64Type>(at, column, |n| values::size_from_i128(n.into()));
            }
            DataType::UInt32 => self.numbers::<UInt32Type>(at, column, |n| Ok(n.into())),
            DataType::UInt16 => self.numbers::<UInt16Type>(at, column, |n| Ok(n.into())),
            DataType::UInt8 => self.numbers::<UInt8Type>(at, column, |n| Ok(n.into())),
            DataType::Decimal128(_, 0) => {
                self.numbers::<Decimal128Type>(at, column, values::size_from_i128);
            }
            &DataType::Decimal128(_, scale) => {
                let size = |unscaled| values::size_from_decimal(unscaled, scale);
                self.numbers::<Decimal128Type>(at, column, size);
            }
            DataType::Float64 => self.numbers::<Float64Type>(at, column, values::size_from_f64),
            DataType::Float32 => {
                self.numbers::<Float32Type>(at, column, |n| values::size_from_f64(n.into()));
            }
            _ => {
                let Some(texts) = Texts::new(column) else {
                    return false;
                };
                for row in 0..column.len() {
                    let size = texts.get(row).filter(|text| !text.is_empty()).map(values::size);
                    self.size(at, row, size);
                }
            }
        }
        true
    }

    fn numbers<T: ArrowPrimitiveType>(
        &mut self,
        at: usize,
        column: &ArrayRef,
        size: impl Fn(T::Native) -> Result<u64, String>,
    ) {
        let column = column.as_primitive::<T>();
        let nulls = column.null_count() > 0;
        for (row, &number) in column.values().iter().enumerate() {
            let there = !nulls || column.is_valid(row);
            match size(number) {
                Ok(size) if there => self.sizes.push(size),
                found => self.size(at, row, there.then_some(found)),
            }
        }
    }

    /// Reads the size of a row. Only a delete marker may lack one.
    #[cold]
    fn size(&mut self, at: usize, row: usize, size: Option<Result<u64, String>>) {
        let marker = self.kinds.get(row) == Some(&Kind::DeleteMarker);
        let size =
            size.unwrap_or_else(|| if marker { Ok(0) } else { Err("there is no size".to_owned()) });
        self.sizes.push(size.unwrap_or_else(|reason| {
            self.bad.entry(row).or_insert((at, reason));
            0
        }));
    }

    /// Months; returns whether the column can contain any.
    fn months(&mut self, at: usize, column: &ArrayRef) -> bool {
        match column.data_type() {
            DataType::Timestamp(TimeUnit::Second, _) => {
                self.moments::<TimestampSecondType>(column, |s| s.saturating_mul(1000));
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                self.moments::<TimestampMillisecondType>(column, |ms| ms);
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.moments::<TimestampMicrosecondType>(column, |us| us.div_euclid(1000));
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                self.moments::<TimestampNanosecondType>(column, |ns| ns.div_euclid(1_000_000));
            }
            DataType::Date32 => {
                self.moments::<Date32Type>(column, |days| i64::from(days) * MS_PER_DAY);
            }
            DataType::Null => {}
            _ => {
                let Some(texts) = Texts::new(column) else {
                    return false;
                };
                let bad = &mut self.bad;
                self.months.extend((0..column.len()).map(|row| {
                    values::month(texts.get(row).unwrap_or_default()).unwrap_or_else(|reason| {
                        bad.entry(row).or_insert((at, reason));
                        Month::UNKNOWN
                    })
                }));
            }
        }
        true
    }

    fn moments<T: ArrowPrimitiveType>(&mut self, column: &ArrayRef, ms: impl Fn(T::Native) -> i64) {
        let column = column.as_primitive::<T>();
        let moments = column.values().iter().map(|&moment| Month::from_unix_ms(ms(moment)));
        self.months.extend(moments);
        if column.null_count() > 0 {
            for (row, month) in self.months.iter_mut().enumerate() {
                if column.is_null(row) {
                    *month = Month::UNKNOWN;
                }
            }
        }
    }

    /// Classes; returns the index of a column that cannot contain any.
    fn classes(
        &mut self,
        rows: usize,
        class: Option<(usize, &ArrayRef)>,
        tier: Option<(usize, &ArrayRef)>,
        names: &mut ClassNames,
    ) -> Option<usize> {
        let there = |column: &Option<(usize, &ArrayRef)>| {
            column.is_some_and(|(_, column)| *column.data_type() != DataType::Null)
        };
        let (class, tier) = (class.filter(|c| there(&Some(*c))), tier.filter(|t| there(&Some(*t))));
        let mut texts = [None, None];
        for (texts, column) in texts.iter_mut().zip([class, tier]) {
            if let Some((at, column)) = column {
                let Some(found) = Texts::new(column) else {
                    return Some(at);
                };
                *texts = Some((at, found));
            }
        }
        let bad = &mut self.bad;
        match texts {
            [None, None] => {}
            [Some((at, classes)), None] => {
                classes.classes(names, &mut self.classes, |row, reason| {
                    bad.entry(row).or_insert((at, reason));
                });
            }
            [classes, Some((tier_at, tiers))] => self.classes.extend((0..rows).map(|row| {
                let class =
                    classes.as_ref().map(|(_, classes)| classes.get(row).unwrap_or_default());
                names.id(class, tiers.get(row).unwrap_or_default()).unwrap_or_else(|reason| {
                    let at = classes.as_ref().map_or(tier_at, |(at, _)| *at);
                    bad.entry(row).or_insert((at, reason));
                    ClassId::STANDARD
                })
            })),
        }
        None
    }

    /// Versions; returns whether the column can contain any.
    fn versions(&mut self, column: &ArrayRef) -> bool {
        if *column.data_type() == DataType::Null {
            return true;
        }
        let Some(texts) = Texts::new(column) else {
            return false;
        };
        let ids = (0..column.len()).map(|row| values::version(texts.get(row).unwrap_or_default()));
        self.versions.extend(ids);
        true
    }
}

/// A boolean column.
enum Booleans<'a> {
    Bits(&'a arrow::array::BooleanArray),
    Texts(Texts<'a>),
    Nothing,
}

impl<'a> Booleans<'a> {
    fn at(column: Option<(usize, &'a ArrayRef)>) -> Option<(usize, Self)> {
        let (at, column) = column?;
        Some((at, Self::new(column)?))
    }

    fn new(column: &'a ArrayRef) -> Option<Self> {
        if *column.data_type() == DataType::Null {
            return Some(Self::Nothing);
        }
        let bits = column.as_boolean_opt().map(Self::Bits);
        bits.or_else(|| Texts::new(column).map(Self::Texts))
    }

    fn get(&self, row: usize) -> Result<Option<bool>, String> {
        match self {
            Self::Bits(bits) => {
                Ok((row < bits.len() && bits.is_valid(row)).then(|| bits.value(row)))
            }
            Self::Texts(texts) => {
                texts.get(row).filter(|text| !text.is_empty()).map(values::boolean).transpose()
            }
            Self::Nothing => Ok(None),
        }
    }
}
