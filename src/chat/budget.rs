//! Limit of the memory that a template may use.
//!
//! The engine counts steps, not the memory that a step uses. So everything that can make text or lists from
//! less is charged here before it runs: operators, filters, methods, functions, written values. Nothing is
//! refunded when a value is dropped. A render has its own thread, and so its own budget.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// Total bytes of text and values that a template may make, including the text of the conversation. A
/// template that appends message after message to one text makes on average half its length for each of them.
pub const MAX_MEMORY: usize = 256 << 20;

/// Bytes of an item of a list, with its share of the list's growth, or of an entry of a dictionary.
pub(super) const ITEM: usize = 64;

/// Maximum number of bytes written for a byte of text: escapes, in the widest form of any notation.
const WRITTEN: usize = 8;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(MAX_MEMORY) };
}

/// Source of an error that reports that the budget is exhausted.
#[derive(Debug)]
pub(super) struct Spent;

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {MAX_MEMORY} bytes of values and text")
    }
}

impl std::error::Error for Spent {}

/// Checks that `bytes` bytes are left, for memory that is held only temporarily.
pub(super) fn room(bytes: usize) -> Result<(), Error> {
    if bytes <= LEFT.get() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, Spent.to_string()).with_source(Spent))
}

/// Subtracts `bytes` from the budget.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    room(bytes)?;
    LEFT.set(LEFT.get() - bytes);
    Ok(())
}

/// Charges a new value: its text, or its items without their contents.
pub(super) fn charged(value: Value) -> Result<Value, Error> {
    charge(own(&value))?;
    Ok(value)
}

/// Returns the bytes of a value itself, without its contents.
fn own(value: &Value) -> usize {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.len(),
        (None, ValueKind::Seq | ValueKind::Map) => ITEM.saturating_mul(1 + value.len().unwrap_or(0)),
        _ => 0,
    }
}

/// Returns the number of items of a list or bytes of a text: an upper bound of the iterations of a loop over
/// it.
pub(super) fn items(value: &Value) -> usize {
    let count = || value.try_iter().map_or(0, Iterator::count);
    value.as_str().map_or_else(|| value.len().unwrap_or_else(count), str::len)
}

/// True if a value contains other values.
fn holds(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
}

/// Returns the values that a value contains.
fn parts(value: &Value) -> Vec<Value> {
    let keys = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Map => keys().chain(keys().filter_map(|key| value.get_item(&key).ok())).collect(),
        ValueKind::Seq | ValueKind::Iterable => keys().collect(),
        _ => Vec::new(),
    }
}

/// Returns the bytes of text in a value and its contents, with an [`ITEM`] for each value: a list that
/// contains another list twice counts it twice. It stops counting beyond the budget.
pub(super) fn deep_size(value: &Value) -> usize {
    let mut todo = vec![value.clone()];
    let mut total = 0usize;
    while let Some(value) = todo.pop() {
        total = total.saturating_add(ITEM + value.as_str().map_or(0, str::len));
        if holds(&value) {
            if total.saturating_add(ITEM.saturating_mul(todo.len() + items(&value))) > MAX_MEMORY {
                return usize::MAX;
            }
            todo.extend(parts(&value));
        }
    }
    total
}

/// Returns the maximum number of bytes of a value when it is written; a text takes its own length.
pub(super) fn written(value: &Value) -> usize {
    value.as_str().map_or_else(|| deep_size(value).saturating_mul(WRITTEN), str::len)
}

/// Checks that values can be written, with one or two temporary copies.
pub(super) fn room_to_write(values: &[Value]) -> Result<(), Error> {
    room(sum(values.iter().map(deep_size)).saturating_mul(WRITTEN))
}

/// Returns the saturating sum of sizes.
pub(super) fn sum(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(0, usize::saturating_add)
}

/// Refuses values that others must not contain. A namespace, and the state of a loop, can change: a contained
/// one could come to contain itself. It would never be freed, and comparing or writing it would not
/// terminate.
pub(super) fn refuse_mutable(values: &[Value]) -> Result<(), Error> {
    let changes = |v: &Value| {
        v.as_object()
            .is_some_and(|o| ["::Namespace", "::Loop"].iter().any(|name| o.type_name().ends_with(name)))
    };
    if values.iter().any(changes) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a namespace or loop cannot be part of another value",
        ));
    }
    Ok(())
}

/// Checks the same for the arguments of a call that may store them.
pub(super) fn refuse_mutable_arguments(arguments: &[Value]) -> Result<(), Error> {
    let named = arguments.iter().filter(|v| v.is_kwargs());
    named.map(parts).try_for_each(|values| refuse_mutable(&values)).and_then(|()| refuse_mutable(arguments))
}

/// Charges a list or dictionary that an instruction made.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    refuse_mutable(&parts(&value))?;
    charged(value)
}

/// Converts an iterator that is evaluated again each time to a list; its items are already charged.
pub(super) fn listed(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Iterable && !value.is_tuple() {
        Ok(value.try_iter()?.collect())
    } else {
        Ok(value)
    }
}

/// Returns the bytes of the text, or of the items, that a copy of a value has.
fn copied(value: &Value) -> usize {
    match value.as_str() {
        Some(text) => text.len(),
        None if holds(value) => ITEM.saturating_mul(items(value)),
        None => 0,
    }
}

/// Charges for the result of an instruction of the engine: `+`, `*`, `~`, a slice `[:]`, and `in`, which
/// writes out any operand to search a text for it. `=` is a change of a namespace and `changed` of a loop.
pub(super) fn operator(name: &str, operands: &[Value]) -> Result<(), Error> {
    let [a, b, ..] = operands else { return Ok(()) };
    charge(match name {
        "+" => copied(a).saturating_add(copied(b)),
        "*" => {
            let (value, times) = if b.is_number() { (a, b) } else { (b, a) };
            copied(value).saturating_mul(times.as_usize().unwrap_or(0))
        }
        "~" => sum(operands.iter().map(written)),
        "[:]" => {
            // A slice of text uses a temporary list of characters, four bytes each, that may be half empty.
            room(copied(a).saturating_mul(12))?;
            copied(a)
        }
        "in" if b.as_str().is_some() && holds(a) => written(a),
        "=" => return refuse_mutable(&operands[..1]),
        "changed" => return refuse_mutable_arguments(&operands[1..]),
        _ => 0,
    })
}
