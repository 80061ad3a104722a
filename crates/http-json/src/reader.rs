//! The rows of all pages of a stream, batch by batch.

use arrow::array::RecordBatch;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::run::{Context, Phase};

use crate::cursor::{Tally, Window};
use crate::layout::Layout;
use crate::pages::{Page, Pages};
use crate::rows::Collector;

/// Reads the rows of a stream.
pub(crate) struct Reader<'a> {
    /// Name of the stream.
    name: &'a str,
    layout: &'a Layout,
    pages: Pages,
    /// The page that is read, and the index of its next record.
    page: Option<(Page, usize)>,
    window: Option<&'a Window>,
    collector: Collector,
    pub(crate) tally: Tally,
}

impl<'a> Reader<'a> {
    /// * `page`: the first page, if it was requested before.
    /// * `window`: which records are read; all without it.
    pub(crate) fn new(
        name: &'a str,
        layout: &'a Layout,
        pages: Pages,
        page: Option<Page>,
        window: Option<&'a Window>,
        batch_size: usize,
    ) -> Self {
        Self {
            name,
            layout,
            pages,
            page: page.map(|page| (page, 0)),
            window,
            collector: Collector::new(layout, batch_size),
            tally: Tally::default(),
        }
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// A page cannot be requested, or a record is invalid.
    pub(crate) async fn next(&mut self, context: &Context) -> Result<Option<RecordBatch>> {
        loop {
            let begun = forebay_sdk::platform::Instant::now();
            let is_full = self.decode()?;
            context.phases.add(Phase::Decode, begun);
            if is_full {
                return self.take();
            }
            let begun = forebay_sdk::platform::Instant::now();
            let page = self.pages.next(context).await?;
            context.phases.add(Phase::Fetch, begun);
            match page {
                Some(page) => self.page = Some((page, 0)),
                None => return self.take(),
            }
        }
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        self.collector.take().map_err(|found| ConnectorError::data(self.name, found))
    }

    /// Collects records of the page until a batch is full. Returns whether one is.
    fn decode(&mut self) -> Result<bool> {
        while let Some((page, index)) = &mut self.page {
            let Some(record) = page.record(*index) else {
                self.page = None;
                break;
            };
            *index += 1;
            let place = |column: Option<&str>| {
                let column = column.map_or_else(String::new, |name| format!(", column {name:?}"));
                format!("{} page {} record {index}{column}", self.name, page.number)
            };
            let values = self.layout.values(record);
            let values = values.map_err(|found| ConnectorError::data(place(None), found))?;
            if let Some(window) = self.window {
                let cursor = values.last().copied().flatten();
                let admitted = window.admits(cursor, &mut self.tally);
                if !admitted.map_err(|found| ConnectorError::data(place(None), found))? {
                    continue;
                }
            }
            self.collector.push(&values).map_err(|(at, found)| {
                let column = self.layout.columns.get(at).map(|column| &*column.name);
                let way_out = "specify another type in the `columns` of the API's settings";
                ConnectorError::data(place(column), format!("{found}; {way_out}"))
            })?;
            if self.collector.is_full() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
