//! What a template may use of memory.
//!
//! The engine counts steps, not what a step makes, so everything that can make text or lists out of less is charged
//! here before it runs: operators, filters, methods, functions, what is written. Nothing is given back when a value is
//! dropped. A render has a thread of its own, and so has its budget.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// Bytes of text and values that a template may make in all, the text of the conversation among them. A template that
/// adds message after message to one text makes half its length for each of them.
pub const MAX_MEMORY: usize = 256 << 20;

/// What an item of a list takes, with its share of the list's growth; an entry of a dictionary, too.
pub(super) const ITEM: usize = 64;

/// Bytes that are written for a byte of text at most: escapes, in the widest form of any of the notations.
const WRITTEN: usize = 8;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(MAX_MEMORY) };
}

/// The source of an error that says that the budget is spent.
#[derive(Debug)]
pub(super) struct Spent;

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {MAX_MEMORY} bytes of values and text")
    }
}

impl std::error::Error for Spent {}

/// Whether there are so many bytes left: for what is held only while something is made.
pub(super) fn room(bytes: usize) -> Result<(), Error> {
    if bytes <= LEFT.get() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, Spent.to_string()).with_source(Spent))
}

/// Takes so many bytes off the budget.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    room(bytes)?;
    LEFT.set(LEFT.get() - bytes);
    Ok(())
}

/// Charges a value that is new: its text, or its items without what is in them.
pub(super) fn charged(value: Value) -> Result<Value, Error> {
    charge(own(&value))?;
    Ok(value)
}

/// Bytes of a value that are its own.
fn own(value: &Value) -> usize {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.len(),
        (None, ValueKind::Seq | ValueKind::Map) => ITEM.saturating_mul(1 + value.len().unwrap_or(0)),
        _ => 0,
    }
}

/// Items of a list, characters of a text: what a loop would go over, at most.
pub(super) fn items(value: &Value) -> usize {
    let count = || value.try_iter().map_or(0, Iterator::count);
    value.as_str().map_or_else(|| value.len().unwrap_or_else(count), str::len)
}

/// Whether a value holds other values.
fn holds(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
}

/// The values that a value holds.
fn parts(value: &Value) -> Vec<Value> {
    let keys = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::Map => keys().chain(keys().filter_map(|key| value.get_item(&key).ok())).collect(),
        ValueKind::Seq | ValueKind::Iterable => keys().collect(),
        _ => Vec::new(),
    }
}

/// Bytes of text in a value and all that it holds, with an [`ITEM`] for each value: a list that holds another list twice
/// has it twice. What is more than the budget is not counted.
pub(super) fn whole(value: &Value) -> usize {
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

/// Bytes that a value takes at most when it is written; a text takes its own.
pub(super) fn written(value: &Value) -> usize {
    value.as_str().map_or_else(|| whole(value).saturating_mul(WRITTEN), str::len)
}

/// Whether values can be written, with a copy or two on the way.
pub(super) fn room_to_write(values: &[Value]) -> Result<(), Error> {
    room(sum(values.iter().map(whole)).saturating_mul(WRITTEN))
}

/// The sum of sizes that may be beyond counting.
pub(super) fn sum(sizes: impl IntoIterator<Item = usize>) -> usize {
    sizes.into_iter().fold(0, usize::saturating_add)
}

/// Refuses values that others must not hold. A namespace, and the state of a loop, can change: one that is held could
/// come to hold itself, which would never be freed, and whoever compares or writes it would not come back.
pub(super) fn unheld(values: &[Value]) -> Result<(), Error> {
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

/// The same for the arguments of a call that may keep them.
pub(super) fn unheld_arguments(arguments: &[Value]) -> Result<(), Error> {
    let named = arguments.iter().filter(|v| v.is_kwargs());
    named.map(parts).try_for_each(|values| unheld(&values)).and_then(|()| unheld(arguments))
}

/// Charges a list or dictionary that an instruction made.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    unheld(&parts(&value))?;
    charged(value)
}

/// A list instead of what is worked out each time it is gone over; its items are charged already.
pub(super) fn listed(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Iterable && !value.is_tuple() {
        Ok(value.try_iter()?.collect())
    } else {
        Ok(value)
    }
}

/// Bytes of the text, or of the items, that a value gives to a copy.
fn copied(value: &Value) -> usize {
    match value.as_str() {
        Some(text) => text.len(),
        None if holds(value) => ITEM.saturating_mul(items(value)),
        None => 0,
    }
}

/// Charges for what an instruction of the engine makes of its operands: `+`, `*`, `~`, a slice `[:]`, `in`, which looks
/// into a text for whatever it is given. `=` is a change of a namespace and `changed` of a loop.
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
            // A text is taken apart on the way, into characters of four bytes in a list that may be half empty.
            room(copied(a).saturating_mul(12))?;
            copied(a)
        }
        "in" if b.as_str().is_some() && holds(a) => written(a),
        "=" => return unheld(&operands[..1]),
        "changed" => return unheld_arguments(&operands[1..]),
        _ => 0,
    })
}
