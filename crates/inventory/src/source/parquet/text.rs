//! Columns of texts, read as views into the bytes of their pages.

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray};

use crate::object::ClassId;
use crate::source::values::ClassNames;

/// Views that are cached with their class.
const RECENT: usize = 8;

/// Texts, some of which may be NULL.
pub(super) struct Texts<'a> {
    array: &'a BinaryViewArray,
    nulls: bool,
}

impl<'a> Texts<'a> {
    /// The texts of a column, if it contains texts.
    pub(super) fn new(column: &'a ArrayRef) -> Option<Self> {
        let array = column.as_binary_view_opt()?;
        Some(Self { array, nulls: array.null_count() > 0 })
    }

    /// The text of a row, if there is one.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&'a [u8]> {
        if row >= self.array.len() || (self.nulls && self.array.is_null(row)) {
            return None;
        }
        Some(self.array.value(row))
    }

    /// The classes of all rows. Equal views of the same column and batch are equal texts, so most
    /// rows compare one number.
    pub(super) fn classes(
        &self,
        names: &mut ClassNames,
        classes: &mut Vec<ClassId>,
        mut bad: impl FnMut(usize, String),
    ) {
        let mut recent = [(0_u128, ClassId::STANDARD); RECENT];
        let mut known = 0;
        // The empty class, whose view is 0.
        let mut last = (0_u128, ClassId::STANDARD);
        for (row, &view) in self.array.views().iter().enumerate() {
            if self.nulls && self.array.is_null(row) {
                // The view of a NULL is arbitrary.
                classes.push(ClassId::STANDARD);
                continue;
            }
            if view != last.0 {
                let met = recent.iter().take(known.min(RECENT)).find(|(met, _)| *met == view);
                last = match met.copied() {
                    Some(met) => met,
                    None => match names.id(Some(self.array.value(row)), b"") {
                        Ok(id) => {
                            if let Some(slot) = recent.get_mut(known % RECENT) {
                                *slot = (view, id);
                            }
                            known += 1;
                            (view, id)
                        }
                        Err(reason) => {
                            bad(row, reason);
                            classes.push(ClassId::STANDARD);
                            continue;
                        }
                    },
                };
            }
            classes.push(last.1);
        }
    }
}
