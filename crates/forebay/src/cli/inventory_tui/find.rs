//! Finds a prefix by typing: below the open prefix, or from the root.

use forebay_inventory::index::Index;
use ratatui::crossterm::event::KeyCode;

use super::list::named;

/// Maximum number of completions shown.
pub(super) const OFFERED: usize = 8;

/// The state of a search.
pub(super) struct Find {
    /// The prefix that is open.
    here: Vec<u8>,
    pub(super) text: String,
    /// Completions of the text.
    pub(super) offered: Vec<Vec<u8>>,
}

impl Find {
    /// # Errors
    /// The index is damaged.
    pub(super) fn new(index: &Index, here: &[u8]) -> anyhow::Result<Self> {
        let mut find = Self { here: here.to_vec(), text: String::new(), offered: Vec::new() };
        find.offer(index)?;
        Ok(find)
    }

    /// Handles a key.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn key(&mut self, index: &Index, code: KeyCode) -> anyhow::Result<()> {
        match code {
            KeyCode::Char(character) => self.text.push(character),
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Tab | KeyCode::Right => self.complete(),
            _ => return Ok(()),
        }
        self.offer(index)
    }

    /// Returns the prefix that the text names, with or without the delimiter at its end.
    ///
    /// # Errors
    /// The index is damaged.
    pub(super) fn found(&self, index: &Index) -> anyhow::Result<Option<Vec<u8>>> {
        let delimiter = [index.delimiter()];
        for before in [&*self.here, b""] {
            for after in [&b""[..], &delimiter] {
                let prefix = [before, self.text.as_bytes(), after].concat();
                if index.get(&prefix)?.is_some() {
                    return Ok(Some(prefix));
                }
            }
        }
        Ok(None)
    }

    /// Appends what all completions have in common.
    fn complete(&mut self) {
        let Some((first, others)) = self.offered.split_first() else { return };
        // There may be more completions than are shown.
        let common = if self.offered.len() < OFFERED {
            others.iter().fold(first.len(), |common, other| {
                let same = first.iter().zip(other).take_while(|(a, b)| a == b).count();
                common.min(same)
            })
        } else {
            self.text.len()
        };
        let common = first.get(..common).and_then(|common| std::str::from_utf8(common).ok());
        if let Some(common) = common.filter(|common| common.len() > self.text.len()) {
            self.text = common.to_owned();
        }
    }

    fn offer(&mut self, index: &Index) -> anyhow::Result<()> {
        let delimiter = index.delimiter();
        let text = self.text.as_bytes();
        let split = text.iter().rposition(|&byte| byte == delimiter).map_or(0, |at| at + 1);
        let (above, begin) = text.split_at(split);
        self.offered.clear();
        for before in [&*self.here, b""] {
            let Some(node) = index.get(&[before, above].concat())? else { continue };
            let names = named(&node, begin, OFFERED)?;
            if !names.is_empty() {
                let whole = |name: &&[u8]| [above, *name, &[delimiter]].concat();
                self.offered = names.iter().map(whole).collect();
                break;
            }
        }
        Ok(())
    }
}
