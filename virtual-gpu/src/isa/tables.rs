//! Tables of encodings: the numbers and printed names of operations.

use super::op::memory::{MemoryRow, ScalarRow as ScalarMemoryRow};

/// An instruction of a generation.
#[derive(Debug)]
pub(crate) struct Entry<T: 'static> {
    pub(crate) code: u16,
    /// Its name, as it is printed.
    pub(crate) name: &'static str,
    /// Its operation; `None` if a processor lacks what others of its generation have under this number.
    pub(crate) row: Option<&'static T>,
}

/// Tables of one format, each sorted by number. The first one that has a number decides.
pub(crate) type Tables<T> = &'static [&'static [Entry<T>]];

/// Returns the instruction with a number.
pub(crate) fn find<T>(tables: Tables<T>, code: u16) -> Option<(&'static str, &'static T)> {
    let entry = |table: &&'static [Entry<T>]| {
        table.binary_search_by_key(&code, |entry| entry.code).ok().map(|i| &table[i])
    };
    let found = tables.iter().find_map(entry)?;
    Some((found.name, found.row?))
}

/// Returns the memory instruction with a number.
pub(crate) fn find_memory(tables: &'static [&'static [MemoryRow]], code: u16) -> Option<&'static MemoryRow> {
    let row = |table: &&'static [MemoryRow]| {
        table.binary_search_by_key(&code, |row| row.code).ok().map(|i| &table[i])
    };
    tables.iter().find_map(row)
}

/// Returns the scalar memory instruction with a number.
pub(crate) fn find_scalar(table: &'static [ScalarMemoryRow], code: u16) -> Option<&'static ScalarMemoryRow> {
    table.binary_search_by_key(&code, |row| row.code).ok().map(|i| &table[i])
}

/// Defines tables of vector or scalar instructions. An entry is `number name`, or `number name = operation` where the
/// name is not the operation's, or `number absent` for an instruction that a processor lacks.
macro_rules! encodings {
    ($($(#[$meta:meta])* $table:ident: $row:ident { $($code:literal $name:ident $(= $op:ident)?)* })*) => {
        $(
            $(#[$meta])*
            pub(crate) const $table: &[$crate::isa::tables::Entry<$crate::isa::$row>] = &[$(
                $crate::isa::tables::Entry {
                    code: $code,
                    name: stringify!($name),
                    row: $crate::isa::tables::encodings!(@row $name $($op)?),
                }
            ),*];
        )*

        #[cfg(test)]
        mod tests {
            #[test]
            fn tables_are_sorted() {
                $(assert!(super::$table.windows(2).all(|w| w[0].code < w[1].code), stringify!($table));)*
            }
        }
    };
    (@row absent) => { None };
    (@row $name:ident) => { Some(&$crate::isa::op::$name) };
    (@row $name:ident $op:ident) => { Some(&$crate::isa::op::$op) };
}
pub(crate) use encodings;
