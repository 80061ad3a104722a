//! The columns of a file that have values, and what a value takes in memory.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use parquet::arrow::ProjectionMask;
use parquet::basic::Type as Physical;
use parquet::schema::types::SchemaDescriptor;

/// Bytes a value of a fixed size takes at most, a view of a text among them.
const VALUE_SIZE: u64 = 16;
/// Bytes of the levels of a value, which say where in its row it is.
const LEVELS_SIZE: u64 = 4;

/// A column of values that is read.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    /// Its place among those of the file.
    pub(crate) index: usize,
    pub(crate) path: String,
    pub(crate) physical: Physical,
    /// Bytes of a value in the file, where all have the same.
    pub(crate) stored: u64,
    /// Whether its values are views of pages.
    pub(crate) is_view: bool,
    pub(crate) max_def_level: i16,
    pub(crate) max_rep_level: i16,
}

impl Leaf {
    /// The columns that a mask chooses. `fields`: the types they are read as.
    pub(crate) fn all(
        schema: &SchemaDescriptor,
        mask: &ProjectionMask,
        fields: &Fields,
    ) -> Vec<Self> {
        let mut types = Vec::new();
        fields.iter().for_each(|field| leaves(field.data_type(), &mut types));
        let chosen = (0..schema.num_columns()).filter(|&index| mask.leaf_included(index));
        let leaf = |(at, index)| {
            let column = schema.column(index);
            let is_view = matches!(types.get(at), Some(DataType::Utf8View | DataType::BinaryView));
            let fixed = u64::try_from(column.type_length()).unwrap_or(0);
            Self {
                index,
                path: column.path().string(),
                physical: column.physical_type(),
                stored: match column.physical_type() {
                    Physical::BOOLEAN | Physical::BYTE_ARRAY => 0,
                    Physical::INT32 | Physical::FLOAT => 4,
                    Physical::INT64 | Physical::DOUBLE => 8,
                    Physical::INT96 => 12,
                    Physical::FIXED_LEN_BYTE_ARRAY => fixed,
                },
                is_view,
                max_def_level: column.max_def_level(),
                max_rep_level: column.max_rep_level(),
            }
        };
        chosen.enumerate().map(leaf).collect()
    }

    /// Bytes that a value takes in a batch, but for those of a text.
    pub(crate) fn decoded(&self) -> u64 {
        // Fixed bytes are read, and then made into what they mean.
        self.stored.max(VALUE_SIZE) * if self.stored > VALUE_SIZE { 2 } else { 1 } + LEVELS_SIZE
    }

    /// Whether a row may have any number of values.
    pub(crate) fn is_repeated(&self) -> bool {
        self.max_rep_level > 0
    }
}

/// The types of the columns that have values, in the order of the file.
fn leaves(data_type: &DataType, into: &mut Vec<DataType>) {
    match data_type {
        DataType::Struct(fields) => fields.iter().for_each(|field| leaves(field.data_type(), into)),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => leaves(field.data_type(), into),
        other => into.push(other.clone()),
    }
}

/// The fields with texts and bytes as views, which are not copied out of their page.
pub(crate) fn viewed(fields: &Fields) -> Fields {
    fields.iter().map(viewed_field).collect()
}

fn viewed_field(field: &FieldRef) -> FieldRef {
    let seen = viewed_type(field.data_type());
    match seen == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(seen)),
    }
}

fn viewed_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => viewed_type(values),
        DataType::List(field) => DataType::List(viewed_field(field)),
        DataType::LargeList(field) => DataType::LargeList(viewed_field(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(viewed_field(field), *size),
        DataType::Struct(fields) => DataType::Struct(viewed(fields)),
        DataType::Map(field, sorted) => DataType::Map(viewed_field(field), *sorted),
        other => other.clone(),
    }
}

/// Bytes that the texts of a column have, each counted wherever a row names it: what a copy of them takes.
#[must_use]
pub fn view_bytes(array: &ArrayRef) -> u64 {
    let between = |offsets: Option<(usize, usize)>, values: &ArrayRef| {
        let (from, to) = offsets.unwrap_or((0, 0));
        view_bytes(&values.slice(from, to.saturating_sub(from)))
    };
    // The length of a text is in the lower half of its view.
    let sum = |views: &[u128]| views.iter().map(|&view| length_of(view)).sum();
    match array.data_type() {
        DataType::Utf8View => sum(array.as_string_view().views()),
        DataType::BinaryView => sum(array.as_binary_view().views()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            between(ends(list.value_offsets()), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            between(ends(list.value_offsets()), list.values())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            between(ends(map.value_offsets()), &entries)
        }
        DataType::FixedSizeList(..) => view_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(view_bytes).sum(),
        _ => 0,
    }
}

/// From where to where values are used.
fn ends<T: Copy + TryInto<usize>>(offsets: &[T]) -> Option<(usize, usize)> {
    let at = |offset: Option<&T>| (*offset?).try_into().ok();
    at(offsets.first()).zip(at(offsets.last()))
}

/// The length of a text, which its view begins with.
fn length_of(view: u128) -> u64 {
    let [a, b, c, d, ..] = view.to_le_bytes();
    u64::from(u32::from_le_bytes([a, b, c, d]))
}
