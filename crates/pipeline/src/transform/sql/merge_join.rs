//! Merge joins whose rows with equal keys can spill.
//!
//! DataFusion's merge join holds all rows of one side with the same key together: it can write them to
//! files, but reads them back for the first row that matches them, and then keeps them in memory, however
//! many they are. This one keeps at most a share of the query's memory, and reads the others again for
//! every row of the other side, which costs no more than the rows of the result that come of it.
//!
//! ```text
//! streamed:  the left side (of a right join the right one), row by row, in order
//! buffered:  the other side, a group of rows with equal keys at a time: a range of one batch, or
//!            batches in memory and the rest in a file
//! ```
//!
//! Invariants:
//! * The result is that of DataFusion's merge join, in the same order of streamed rows.
//! * Pairs of rows wait as indexes of one streamed and one buffered batch, and at most as many as a batch
//!   has rows: before either batch is exchanged, they become rows.

use std::fmt;
use std::io::{BufReader, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{TaskContext, TryEmitter, async_try_stream};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use forebay_sdk::error::ConnectorError;

use super::merge_side::{Keys, Side};
use super::scan::Reading;
use super::spill::{Reader, Spill, Spills, Writer};

#[cfg(test)]
mod tests;

/// The share of a query's memory for the rows of one group.
const SHARE: usize = 4;
/// Number of bytes read and written at once.
const BUFFER_SIZE: usize = 128 << 10;
/// Instead of an index: the row has no partner.
const NONE: u32 = u32::MAX;
/// Instead of an index: all partners of the streamed row came before. If none of them passed the filter,
/// it has none.
const END: u32 = u32::MAX - 1;

/// The plan with merge joins that can spill.
///
/// * `limit`: maximum size in bytes of the rows with one key in memory; by default a share of the query's
///   memory.
pub(super) fn spilling(
    plan: Arc<dyn ExecutionPlan>,
    spills: &Arc<Spills>,
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    use JoinType::{Full, Inner, Left, Right};

    let plan = plan.transform_up(|node| {
        let join = node.downcast_ref::<SortMergeJoinExec>();
        // Joins of other types return no rows of the buffered side, and can spill already.
        if !join.is_some_and(|join| matches!(join.join_type(), Inner | Left | Right | Full)) {
            return Ok(Transformed::no(node));
        }
        let join = MergeJoin { join: node, spills: Arc::clone(spills), limit };
        Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(plan.data)
}

/// A merge join.
#[derive(Debug)]
struct MergeJoin {
    /// DataFusion's, which has all properties of this one, and its inputs.
    join: Arc<dyn ExecutionPlan>,
    spills: Arc<Spills>,
    limit: Option<usize>,
}

impl MergeJoin {
    fn merge(&self, part: usize, task: &Arc<TaskContext>) -> Result<Merge> {
        let join = self.join.downcast_ref::<SortMergeJoinExec>();
        let join = join.ok_or_else(|| DataFusionError::Internal("not a merge join".into()))?;
        let (on_left, on_right): (Vec<_>, Vec<_>) = join.on().iter().cloned().unzip();
        let keys = Keys::new(&on_left, &join.left().schema(), join.sort_options())?;
        let left = Side::new(join.left().execute(part, Arc::clone(task))?, on_left);
        let right = Side::new(join.right().execute(part, Arc::clone(task))?, on_right);
        let is_left = SortMergeJoinExec::probe_side(&join.join_type()) == JoinSide::Left;
        let (streamed, buffered) = if is_left { (left, right) } else { (right, left) };
        let pool = task.memory_pool();
        let share = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / SHARE,
            _ => usize::MAX,
        };
        Ok(Merge {
            chunk: RecordBatch::new_empty(buffered.schema()),
            schema: join.schema(),
            streamed,
            buffered,
            is_left,
            keys,
            nulls_match: join.null_equality() == NullEquality::NullEqualsNull,
            filter: join.filter().clone(),
            keeps_streamed: join.join_type() != JoinType::Inner,
            keeps_buffered: join.join_type() == JoinType::Full,
            batch_size: task.session_config().batch_size(),
            limit: self.limit.unwrap_or(share),
            reading: task.session_config().get_extension::<Reading>(),
            reservation: MemoryConsumer::new("rows with equal keys").register(pool),
            spills: Arc::clone(&self.spills),
            pairs: Vec::new(),
            has_passed: false,
            passed: Vec::new(),
            first: 0,
        })
    }
}

impl DisplayAs for MergeJoin {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MergeJoin")
    }
}

impl ExecutionPlan for MergeJoin {
    fn name(&self) -> &'static str {
        "MergeJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.join.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = Arc::clone(&self.join).replace_children(children, options)?;
        Ok(Arc::new(Self { join, spills: Arc::clone(&self.spills), limit: self.limit }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(Recompute))
    }

    fn execute(&self, part: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let merge = self.merge(part, &task)?;
        let rows = async_try_stream(|out| merge.run(out));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// Receives the rows of a join.
type Out = TryEmitter<RecordBatch, DataFusionError>;

/// A join that is running.
struct Merge {
    schema: SchemaRef,
    streamed: Side,
    buffered: Side,
    /// Whether the left side is the streamed one.
    is_left: bool,
    keys: Keys,
    /// Whether NULL is equal to NULL.
    nulls_match: bool,
    filter: Option<JoinFilter>,
    /// Whether rows without a partner are in the result.
    keeps_streamed: bool,
    keeps_buffered: bool,
    batch_size: usize,
    /// Maximum size in bytes of the rows of a group in memory.
    limit: usize,
    reservation: MemoryReservation,
    spills: Arc<Spills>,
    /// The reading of the query, with which the join ends.
    reading: Option<Arc<Reading>>,
    /// Indexes of the current batch of the streamed side, and of `chunk`.
    pairs: Vec<(u32, u32)>,
    chunk: RecordBatch,
    /// Whether a pair of the current streamed row has passed the filter.
    has_passed: bool,
    /// Which rows of a group have passed the filter, if that matters, and the index of the chunk's first
    /// row among them.
    passed: Vec<bool>,
    first: usize,
}

/// Buffered rows with equal keys of more than one batch.
struct Group {
    chunks: Vec<RecordBatch>,
    file: Option<Spill>,
    rows: usize,
}

impl Merge {
    async fn run(mut self, mut out: Out) -> Result<()> {
        loop {
            self.fill(&mut out).await?;
            match (self.streamed.row(), self.buffered.row()) {
                (None, None) => break,
                (Some(row), None) => self.alone(row),
                (None, Some(row)) => self.buffered_alone(row),
                (Some(row), Some(other)) => {
                    use std::cmp::Ordering::{Equal, Greater, Less};
                    match self.streamed.compare(&self.buffered) {
                        _ if self.is_null(&self.streamed) => self.alone(row),
                        _ if self.is_null(&self.buffered) => self.buffered_alone(other),
                        Less => self.alone(row),
                        Greater => self.buffered_alone(other),
                        Equal => self.group(&mut out).await?,
                    }
                }
            }
            if self.pairs.len() >= self.batch_size {
                self.flush(&mut out).await?;
            }
        }
        self.flush(&mut out).await
    }

    /// Ensures that both sides have a current row, unless they have ended.
    async fn fill(&mut self, out: &mut Out) -> Result<()> {
        if self.streamed.needs_batch() {
            self.flush(out).await?;
            self.streamed.fill(&self.keys).await?;
        }
        if self.buffered.needs_batch() {
            self.flush(out).await?;
            self.buffered.fill(&self.keys).await?;
            self.chunk = self.buffered.batch.clone();
        }
        Ok(())
    }

    fn is_null(&self, side: &Side) -> bool {
        !self.nulls_match && side.has_null()
    }

    fn alone(&mut self, row: u32) {
        if self.keeps_streamed {
            self.pairs.push((row, NONE));
        }
        self.streamed.advance();
    }

    fn buffered_alone(&mut self, row: u32) {
        if self.keeps_buffered {
            self.pairs.push((NONE, row));
        }
        self.buffered.advance();
    }

    /// Joins the rows of both sides that have the current key.
    async fn group(&mut self, out: &mut Out) -> Result<()> {
        let (from, to) = self.buffered.run();
        if to == self.buffered.batch.num_rows() {
            return self.long_group(out).await;
        }
        self.begin_group(to);
        loop {
            self.pair(from..to, true, out).await?;
            if !self.next_streamed(out).await?
                || self.streamed.compare(&self.buffered) != std::cmp::Ordering::Equal
            {
                break;
            }
        }
        if self.flags_buffered() {
            self.flush(out).await?;
            for row in from..to {
                self.refused(row)?;
            }
        }
        self.buffered.at = to;
        Ok(())
    }

    /// The same for rows of the buffered side that may be in several batches.
    async fn long_group(&mut self, out: &mut Out) -> Result<()> {
        self.flush(out).await?;
        let key = self.buffered.key();
        let group = self.gather(out).await?;
        self.begin_group(group.rows);
        self.reservation.try_grow(self.passed.len())?;
        loop {
            let count = group.chunks.len();
            for (index, chunk) in group.chunks.iter().enumerate() {
                let is_last = index + 1 == count && group.file.is_none();
                self.pair_chunk(chunk, count > 1 || group.file.is_some(), is_last, out).await?;
            }
            if let Some(file) = &group.file {
                let mut chunks = read(file)?.peekable();
                while let Some(chunk) = chunks.next() {
                    self.pair_chunk(&chunk?, true, chunks.peek().is_none(), out).await?;
                }
            }
            self.first = 0;
            if !self.next_streamed(out).await? || !self.streamed.has_key(&key) {
                break;
            }
        }
        self.flush(out).await?;
        if self.flags_buffered() {
            for chunk in &group.chunks {
                self.refused_chunk(chunk, out).await?;
            }
            if let Some(file) = &group.file {
                for chunk in read(file)? {
                    self.refused_chunk(&chunk?, out).await?;
                }
            }
        }
        self.reservation.free();
        self.chunk = self.buffered.batch.clone();
        Ok(())
    }

    fn begin_group(&mut self, rows: usize) {
        self.first = 0;
        self.passed.clear();
        if self.flags_buffered() {
            self.passed.resize(rows, false);
        }
    }

    /// Whether it has to be known which buffered rows have passed the filter.
    fn flags_buffered(&self) -> bool {
        self.keeps_buffered && self.filter.is_some()
    }

    /// Collects the rows of a group, up to the first row with another key.
    async fn gather(&mut self, out: &mut Out) -> Result<Group> {
        let key = self.buffered.key();
        let mut group = Group { chunks: Vec::new(), file: None, rows: 0 };
        let mut writer: Option<Chunks> = None;
        let mut size = 0;
        loop {
            let (from, to) = self.buffered.run();
            let chunk = self.buffered.batch.slice(from, to - from);
            group.rows += chunk.num_rows();
            size += chunk.get_array_memory_size();
            if writer.is_none()
                && size <= self.limit
                && self.reservation.try_grow(chunk.get_array_memory_size()).is_ok()
            {
                group.chunks.push(chunk);
            } else {
                if writer.is_none() {
                    let (file, begun) = begin(&self.spills, &chunk.schema())?;
                    (group.file, writer) = (Some(file), Some(begun));
                }
                if let Some(writer) = &mut writer {
                    writer.write(&chunk)?;
                }
            }
            let is_whole = to == self.buffered.batch.num_rows();
            self.buffered.at = to;
            if !is_whole {
                break;
            }
            self.fill(out).await?;
            if self.buffered.row().is_none() || !self.buffered.has_key(&key) {
                break;
            }
        }
        if let Some(mut writer) = writer {
            writer.finish()?;
            writer.into_inner()?.flush()?;
        } else if group.rows <= self.batch_size {
            let schema = self.buffered.schema();
            group.chunks = vec![concat_batches(&schema, &group.chunks)?];
        }
        Ok(group)
    }

    /// Pairs the current streamed row with the rows of a chunk.
    ///
    /// * `is_one_of`: whether the group has several chunks.
    async fn pair_chunk(
        &mut self,
        chunk: &RecordBatch,
        is_one_of: bool,
        is_last: bool,
        out: &mut Out,
    ) -> Result<()> {
        if is_one_of {
            self.flush(out).await?;
        }
        self.chunk = chunk.clone();
        self.pair(0..chunk.num_rows(), is_last, out).await?;
        if is_one_of {
            self.flush(out).await?;
            self.first += chunk.num_rows();
        }
        Ok(())
    }

    /// Pairs the current streamed row with rows of the chunk.
    ///
    /// * `is_end`: whether it has no other partners.
    async fn pair(
        &mut self,
        rows: std::ops::Range<usize>,
        is_end: bool,
        out: &mut Out,
    ) -> Result<()> {
        let Some(streamed) = self.streamed.row() else { return Ok(()) };
        for row in rows {
            self.pairs.push((streamed, index(row)?));
            if self.pairs.len() >= self.batch_size {
                self.flush(out).await?;
            }
        }
        if is_end && self.filter.is_some() && self.keeps_streamed {
            self.pairs.push((streamed, END));
        }
        Ok(())
    }

    /// Advances to the next streamed row. Returns whether there is one.
    async fn next_streamed(&mut self, out: &mut Out) -> Result<bool> {
        self.streamed.advance();
        if self.streamed.needs_batch() {
            self.flush(out).await?;
            self.streamed.fill(&self.keys).await?;
        }
        Ok(self.streamed.row().is_some())
    }

    /// Adds a buffered row to the result if none of its pairs has passed the filter.
    fn refused(&mut self, row: usize) -> Result<()> {
        if self.passed.get(self.first + row) == Some(&false) {
            self.pairs.push((NONE, index(row)?));
        }
        Ok(())
    }

    async fn refused_chunk(&mut self, chunk: &RecordBatch, out: &mut Out) -> Result<()> {
        self.chunk = chunk.clone();
        for row in 0..chunk.num_rows() {
            self.refused(row)?;
        }
        self.first += chunk.num_rows();
        self.flush(out).await
    }

    /// Turns the pairs into rows of the result.
    async fn flush(&mut self, out: &mut Out) -> Result<()> {
        // A filter may refuse more pairs than anyone waits for.
        if let Some(reading) = self.reading.as_ref().filter(|reading| reading.has_ended()) {
            return Err(reading.fail(ConnectorError::Stopped));
        }
        let mut pairs = std::mem::take(&mut self.pairs);
        if let (Some(filter), false) = (self.filter.clone(), pairs.is_empty()) {
            pairs = self.filtered(&filter, pairs)?;
        }
        if !pairs.is_empty() {
            out.emit(self.rows(&pairs)?).await;
        }
        Ok(())
    }

    /// The pairs that pass the filter, and rows of which none has.
    fn filtered(&mut self, filter: &JoinFilter, pairs: Vec<(u32, u32)>) -> Result<Vec<(u32, u32)>> {
        let is_pair = |(one, other): &(u32, u32)| *one != NONE && *other < END;
        let both: Vec<(u32, u32)> = pairs.iter().copied().filter(is_pair).collect();
        let passes = self.passes(filter, &both)?;
        let mut passes = passes.as_boolean().iter();
        let mut kept = Vec::with_capacity(both.len());
        for pair in pairs {
            let (streamed, buffered) = pair;
            if is_pair(&pair) {
                if passes.next() == Some(Some(true)) {
                    self.has_passed = true;
                    let row = self.first + buffered as usize;
                    if let Some(passed) = self.passed.get_mut(row) {
                        *passed = true;
                    }
                    kept.push(pair);
                }
            } else if buffered != END {
                kept.push(pair);
            } else if !std::mem::take(&mut self.has_passed) {
                kept.push((streamed, NONE));
            }
        }
        Ok(kept)
    }

    /// Which pairs pass the filter.
    fn passes(&self, filter: &JoinFilter, both: &[(u32, u32)]) -> Result<ArrayRef> {
        let columns = filter.column_indices().iter().map(|column| {
            let is_streamed = (column.side == JoinSide::Left) == self.is_left;
            self.column(both, is_streamed, column.index)
        });
        let options = RecordBatchOptions::new().with_row_count(Some(both.len()));
        let columns = columns.collect::<Result<_>>()?;
        let schema = Arc::clone(filter.schema());
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        filter.expression().evaluate(&batch)?.into_array(both.len())
    }

    fn rows(&self, pairs: &[(u32, u32)]) -> Result<RecordBatch> {
        let streamed = 0..self.streamed.batch.num_columns();
        let buffered = 0..self.chunk.num_columns();
        let streamed = streamed.map(|column| self.column(pairs, true, column));
        let buffered = buffered.map(|column| self.column(pairs, false, column));
        let columns: Vec<ArrayRef> = if self.is_left {
            streamed.chain(buffered).collect::<Result<_>>()?
        } else {
            buffered.chain(streamed).collect::<Result<_>>()?
        };
        let options = RecordBatchOptions::new().with_row_count(Some(pairs.len()));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// The values of a column in these rows.
    fn column(&self, pairs: &[(u32, u32)], is_streamed: bool, at: usize) -> Result<ArrayRef> {
        let batch = if is_streamed { &self.streamed.batch } else { &self.chunk };
        let column = batch.column(at);
        if column.is_empty() {
            return Ok(new_null_array(column.data_type(), pairs.len()));
        }
        let row = |(streamed, buffered): &(u32, u32)| {
            let row = if is_streamed { *streamed } else { *buffered };
            (row != NONE).then_some(row)
        };
        let rows: UInt32Array = pairs.iter().map(row).collect();
        Ok(take(column, &rows, None)?)
    }
}

/// The index of a row of a batch.
fn index(row: usize) -> Result<u32> {
    let index = u32::try_from(row).ok().filter(|row| *row < END);
    index.ok_or_else(|| DataFusionError::Internal("a batch has too many rows".into()))
}

type Chunks = StreamWriter<BufWriter<Writer>>;

/// A file for the rows of a group.
fn begin(spills: &Spills, schema: &SchemaRef) -> Result<(Spill, Chunks)> {
    let file = spills.file()?;
    let buffer = BufWriter::with_capacity(BUFFER_SIZE, file.writer());
    Ok((file, StreamWriter::try_new(buffer, schema)?))
}

/// The rows of such a file. The thread of the query may block.
fn read(file: &Spill) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
    let reader: BufReader<Reader> = BufReader::with_capacity(BUFFER_SIZE, file.reader());
    let chunks = StreamReader::try_new(reader, None)?;
    Ok(chunks.map(|chunk| chunk.map_err(DataFusionError::from)))
}
