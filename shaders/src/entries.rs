//! The whole shader table with all variants, and the search by stem.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::table::{Source, Variant};
use crate::variants::SOURCES;

/// A source with its variants.
#[derive(Debug)]
pub struct Entry {
    /// The entry of the table.
    pub source: &'static Source,
    /// Variants of the source.
    pub variants: Vec<Variant>,
}

/// Returns the whole table with all variants, in the order of the table.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> =
        LazyLock::new(|| SOURCES.iter().map(|source| Entry { source, variants: source.expand() }).collect());
    &ENTRIES
}

/// Returns the entry with this stem.
pub fn entry(stem: &str) -> Option<&'static Entry> {
    static BY_STEM: LazyLock<HashMap<&'static str, &'static Entry>> =
        LazyLock::new(|| entries().iter().map(|entry| (entry.source.stem(), entry)).collect());
    BY_STEM.get(stem).copied()
}
