//! Totals by group: a sum and a count each, added with checks.

use std::fmt::Debug;
use std::hash::Hash;
use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, BooleanArray, Decimal128Array,
    Decimal256Array, Float32Array, Float64Array, Int64Array, PrimitiveArray, UInt64Array,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int64Type, UInt64Type, i256,
};
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::decimal;
use super::number::{fits, quotient};

/// What becomes of totals.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// The type of the result.
    pub(super) to: DataType,
    pub(super) is_average: bool,
    /// Digits after the point of what is added.
    pub(super) scale: i8,
}

impl Made {
    fn overflow(&self) -> DataFusionError {
        let what = if self.is_average { "average" } else { "sum" };
        exec_datafusion_err!("{} is out of range: it cannot hold the {what}", self.to)
    }
}

/// A number that is added: integers and small decimals in 128 bits, large decimals in 256.
pub(super) trait Number: Copy + Debug + Send + Sync + 'static {
    /// The type of sums on their way.
    const DATA_TYPE: DataType;
    const ZERO: Self;
    /// Whether a number that was added can be subtracted again.
    const IS_EXACT: bool;
    /// Equal for equal numbers.
    type Bits: Copy + Debug + Eq + Hash + Send + Sync;

    fn add(self, other: Self) -> Option<Self>;
    fn subtract(self, other: Self) -> Option<Self>;
    fn bits(self) -> Self::Bits;
    fn of_bits(bits: Self::Bits) -> Self;

    /// Calls `give` with the index and the value of each value that is not NULL.
    fn each(array: &ArrayRef, give: impl FnMut(usize, Self) -> Result<()>) -> Result<()>;

    /// An array of the type of sums.
    fn array(values: impl Iterator<Item = Option<Self>>) -> ArrayRef;

    /// The results of sums and their counts; NULL where nothing was counted.
    fn made(made: &Made, sums: &[Self], counts: &[i64]) -> Result<ArrayRef>;
}

/// The values of an array that are not NULL.
fn values<T: ArrowPrimitiveType, N>(
    array: &PrimitiveArray<T>,
    number: impl Fn(T::Native) -> N,
    mut give: impl FnMut(usize, N) -> Result<()>,
) -> Result<()> {
    if array.null_count() == 0 {
        return array.values().iter().enumerate().try_for_each(|(at, it)| give(at, number(*it)));
    }
    array.iter().enumerate().try_for_each(|(at, it)| it.map_or(Ok(()), |it| give(at, number(it))))
}

fn unknown(of: &DataType) -> DataFusionError {
    exec_datafusion_err!("{of} cannot be added")
}

/// The results as an integer or a decimal.
fn exact(made: &Made, sums: impl Iterator<Item = (i256, i64)>) -> Result<ArrayRef> {
    let refused = || made.overflow();
    let Some((precision, scale)) = decimal(&made.to) else {
        let sums = sums.map(|(sum, count)| match count {
            0 => Ok(None),
            _ => sum.to_i128().map(Some).ok_or_else(refused),
        });
        let sums = sums.collect::<Result<Vec<_>>>()?;
        return match made.to {
            DataType::Int64 => {
                let made = sums.into_iter().map(|it| it.map(i64::try_from).transpose());
                let made = made.collect::<std::result::Result<Int64Array, _>>();
                Ok(Arc::new(made.map_err(|_| refused())?) as ArrayRef)
            }
            DataType::UInt64 => {
                let made = sums.into_iter().map(|it| it.map(u64::try_from).transpose());
                let made = made.collect::<std::result::Result<UInt64Array, _>>();
                Ok(Arc::new(made.map_err(|_| refused())?))
            }
            _ => Err(unknown(&made.to)),
        };
    };
    let up = u32::try_from(i16::from(scale) - i16::from(made.scale)).unwrap_or(0);
    let results = sums.map(|(sum, count)| {
        if count == 0 {
            return Ok(None);
        }
        let result = match made.is_average {
            true => quotient(sum, i256::from_i128(count.into()), up),
            false => Some(sum),
        };
        result.filter(|it| fits(*it, precision)).map(Some).ok_or_else(refused)
    });
    let results = results.collect::<Result<Vec<_>>>()?;
    match made.to {
        DataType::Decimal128(..) => {
            let narrow = results.into_iter().map(|it| it.and_then(i256::to_i128));
            let narrow: Decimal128Array = narrow.collect();
            Ok(Arc::new(narrow.with_precision_and_scale(precision, scale)?))
        }
        _ => {
            let wide: Decimal256Array = results.into_iter().collect();
            Ok(Arc::new(wide.with_precision_and_scale(precision, scale)?))
        }
    }
}

impl Number for i128 {
    const DATA_TYPE: DataType = DataType::Decimal128(38, 0);
    const ZERO: Self = 0;
    const IS_EXACT: bool = true;
    type Bits = Self;

    fn add(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn subtract(self, other: Self) -> Option<Self> {
        self.checked_sub(other)
    }

    fn bits(self) -> Self {
        self
    }

    fn of_bits(bits: Self) -> Self {
        bits
    }

    fn each(array: &ArrayRef, give: impl FnMut(usize, Self) -> Result<()>) -> Result<()> {
        match array.data_type() {
            DataType::Int64 => values(array.as_primitive::<Int64Type>(), Self::from, give),
            DataType::UInt64 => values(array.as_primitive::<UInt64Type>(), Self::from, give),
            DataType::Decimal128(..) => {
                values(array.as_primitive::<Decimal128Type>(), |it| it, give)
            }
            other => Err(unknown(other)),
        }
    }

    fn array(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
        let array: Decimal128Array = values.collect();
        Arc::new(array.with_data_type(Self::DATA_TYPE))
    }

    fn made(made: &Made, sums: &[Self], counts: &[i64]) -> Result<ArrayRef> {
        exact(made, sums.iter().map(|sum| i256::from_i128(*sum)).zip(counts.iter().copied()))
    }
}

impl Number for i256 {
    const DATA_TYPE: DataType = DataType::Decimal256(76, 0);
    const ZERO: Self = i256::ZERO;
    const IS_EXACT: bool = true;
    type Bits = Self;

    fn add(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn subtract(self, other: Self) -> Option<Self> {
        self.checked_sub(other)
    }

    fn bits(self) -> Self {
        self
    }

    fn of_bits(bits: Self) -> Self {
        bits
    }

    fn each(array: &ArrayRef, give: impl FnMut(usize, Self) -> Result<()>) -> Result<()> {
        match array.as_primitive_opt::<Decimal256Type>() {
            Some(array) => values(array, |it| it, give),
            None => Err(unknown(array.data_type())),
        }
    }

    fn array(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
        let array: Decimal256Array = values.collect();
        Arc::new(array.with_data_type(Self::DATA_TYPE))
    }

    fn made(made: &Made, sums: &[Self], counts: &[i64]) -> Result<ArrayRef> {
        exact(made, sums.iter().copied().zip(counts.iter().copied()))
    }
}

/// Sums of `real`, of which each step has its precision, as in PostgreSQL.
impl Number for f32 {
    const DATA_TYPE: DataType = DataType::Float32;
    const ZERO: Self = 0.0;
    const IS_EXACT: bool = false;
    type Bits = u32;

    /// As those of `double precision`.
    fn add(self, other: Self) -> Option<Self> {
        let sum = self + other;
        (sum.is_finite() || !self.is_finite() || !other.is_finite()).then_some(sum)
    }

    fn subtract(self, other: Self) -> Option<Self> {
        Number::add(self, -other)
    }

    fn bits(self) -> u32 {
        if self == 0.0 { 0 } else { self.to_bits() }
    }

    fn of_bits(bits: u32) -> Self {
        Self::from_bits(bits)
    }

    fn each(array: &ArrayRef, give: impl FnMut(usize, Self) -> Result<()>) -> Result<()> {
        match array.as_primitive_opt::<Float32Type>() {
            Some(array) => values(array, |it| it, give),
            None => Err(unknown(array.data_type())),
        }
    }

    fn array(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
        Arc::new(values.collect::<Float32Array>())
    }

    fn made(_: &Made, sums: &[Self], counts: &[i64]) -> Result<ArrayRef> {
        let results = sums.iter().zip(counts).map(|(sum, count)| (*count > 0).then_some(*sum));
        Ok(Arc::new(results.collect::<Float32Array>()))
    }
}

impl Number for f64 {
    const DATA_TYPE: DataType = DataType::Float64;
    const ZERO: Self = 0.0;
    const IS_EXACT: bool = false;
    type Bits = u64;

    /// As in PostgreSQL, finite numbers have a finite sum, or none.
    fn add(self, other: Self) -> Option<Self> {
        let sum = self + other;
        (sum.is_finite() || !self.is_finite() || !other.is_finite()).then_some(sum)
    }

    fn subtract(self, other: Self) -> Option<Self> {
        Number::add(self, -other)
    }

    fn bits(self) -> u64 {
        if self == 0.0 { 0 } else { self.to_bits() }
    }

    fn of_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    fn each(array: &ArrayRef, give: impl FnMut(usize, Self) -> Result<()>) -> Result<()> {
        match array.as_primitive_opt::<Float64Type>() {
            Some(array) => values(array, |it| it, give),
            None => Err(unknown(array.data_type())),
        }
    }

    fn array(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
        Arc::new(values.collect::<Float64Array>())
    }

    fn made(made: &Made, sums: &[Self], counts: &[i64]) -> Result<ArrayRef> {
        let results = sums.iter().zip(counts).map(|(sum, count)| {
            #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
            let by = if made.is_average { *count as f64 } else { 1.0 };
            (*count > 0).then_some(sum / by)
        });
        Ok(Arc::new(results.collect::<Float64Array>()))
    }
}

/// Sums and counts, one of each a group.
#[derive(Debug)]
pub(super) struct Totals<N> {
    pub(super) made: Made,
    sums: Vec<N>,
    counts: Vec<i64>,
}

impl<N: Number> Totals<N> {
    pub(super) fn new(made: Made) -> Self {
        Self { made, sums: Vec::new(), counts: Vec::new() }
    }

    fn resize(&mut self, groups: usize) {
        let groups = groups.max(self.sums.len());
        self.sums.resize(groups, N::ZERO);
        self.counts.resize(groups, 0);
    }

    fn put(&mut self, group: usize, value: N, count: i64) -> Result<()> {
        let (Some(sum), Some(counted)) = (self.sums.get_mut(group), self.counts.get_mut(group))
        else {
            return Err(exec_datafusion_err!("there is no group {group}"));
        };
        *sum = sum.add(value).ok_or_else(|| self.made.overflow())?;
        *counted += count;
        Ok(())
    }

    /// Adds values to the first group.
    pub(super) fn add_all(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.resize(1);
        let Some(values) = values.first() else { return Ok(()) };
        N::each(values, |_, value| self.put(0, value, 1))
    }

    /// Subtracts values from the first group.
    pub(super) fn subtract_all(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.resize(1);
        let Some(values) = values.first() else { return Ok(()) };
        N::each(values, |_, value| {
            let less = N::ZERO.subtract(value).ok_or_else(|| self.made.overflow())?;
            self.put(0, less, -1)
        })
    }

    /// The result of the first group.
    pub(super) fn shown(&mut self) -> Result<ArrayRef> {
        self.resize(1);
        N::made(&self.made, &self.sums, &self.counts)
    }

    /// The state of all groups.
    pub(super) fn stated(&mut self) -> Result<Vec<ArrayRef>> {
        self.resize(1);
        Ok(Self::states(&self.sums, &self.counts))
    }

    fn states(sums: &[N], counts: &[i64]) -> Vec<ArrayRef> {
        let sums = N::array(sums.iter().map(|sum| Some(*sum)));
        vec![sums, Arc::new(Int64Array::from(counts.to_vec()))]
    }
}

impl<N: Number> GroupsAccumulator for Totals<N> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let Some(values) = values.first() else { return Ok(()) };
        N::each(values, |row, value| {
            let is_in = opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            match group_indices.get(row) {
                Some(group) if is_in => self.put(*group, value, 1),
                _ => Ok(()),
            }
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, counts) =
            (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        N::made(&self.made, &sums, &counts)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, counts) =
            (emit_to.take_needed(&mut self.sums), emit_to.take_needed(&mut self.counts));
        Ok(Self::states(&sums, &counts))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let [sums, counts] = values else {
            return Err(exec_datafusion_err!("a state has a sum and a count"));
        };
        let counts = counts.as_primitive::<Int64Type>();
        N::each(sums, |row, sum| match group_indices.get(row) {
            Some(group) => self.put(*group, sum, counts.value(row)),
            None => Ok(()),
        })
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        // Every row is a group.
        let rows = values.first().map_or(0, |values| values.len());
        let groups: Vec<usize> = (0..rows).collect();
        let mut each = Self::new(self.made.clone());
        each.update_batch(values, &groups, opt_filter, rows)?;
        Ok(Self::states(&each.sums, &each.counts))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<N>() + self.counts.capacity() * size_of::<i64>()
    }
}
