//! Limits of the memory and of the work of a template.
//!
//! The engine counts steps, not the memory or the time that a step uses. So everything that can make text or
//! lists from less is charged here before it runs: operators, filters, methods, functions, written values.
//! Nothing is refunded when a value is dropped. What a step compares or searches without making anything is
//! charged as work, and while it is charged the deadline is checked and the caller's [`Cancel`] is asked. A
//! render has its own thread, and so its own budget.

use crate::cancel::Cancel;
use ggml_core::Deadline;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Total bytes of text and values that a template may make, including the text of the conversation. A
/// template that appends message after message to one text makes on average half its length for each of them.
pub const MAX_MEMORY: usize = 256 << 20;

/// Total bytes of text and values that a template may compare, search or measure; an item of a list counts 64.
pub const MAX_WORK: usize = 1 << 30;

/// Time that a template may take if its input sets no other: far more than a long conversation needs.
pub const MAX_TIME: Duration = Duration::from_secs(20);

/// Work of a comparison, in addition to the bytes that it compares.
const STEP: usize = 16;

/// Work between two checks of the deadline is 2 to this power.
const CHECK: u32 = 18;

/// Bytes of an item of a list, with its share of the list's growth, or of an entry of a dictionary.
pub(super) const ITEM: usize = 64;

/// Maximum number of bytes written for a byte of text: escapes, in the widest form of any notation.
const WRITTEN: usize = 8;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(MAX_MEMORY) };
    static WORK: Cell<usize> = const { Cell::new(MAX_WORK) };
    static STOPPED: Cell<Option<Spent>> = const { Cell::new(None) };
    static LIMIT: RefCell<Limit> = const { RefCell::new(Limit { deadline: None, cancel: None }) };
}

/// Limits that the caller sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    pub(super) deadline: Option<Deadline>,
    pub(super) cancel: Option<Cancel>,
}

/// Sets the limits of this thread's template.
pub(super) fn begin(limit: &Limit) {
    LIMIT.set(limit.clone());
}

/// Reason why a template is stopped; source of the engine's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Memory,
    Work,
    Time,
    Cancelled,
}

impl std::fmt::Display for Spent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spent::Memory => write!(f, "more than {MAX_MEMORY} bytes of values and text"),
            Spent::Work => write!(f, "more than {MAX_WORK} bytes of values and text compared or searched"),
            Spent::Time => f.write_str("not finished at its deadline"),
            Spent::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Spent {}

impl Spent {
    fn error(self) -> Error {
        Error::new(ErrorKind::InvalidOperation, self.to_string()).with_source(self)
    }
}

/// Checks that `bytes` bytes are left, for memory that is held only temporarily.
pub(super) fn room(bytes: usize) -> Result<(), Error> {
    match STOPPED.get() {
        Some(why) => Err(why.error()),
        None if bytes <= LEFT.get() => Ok(()),
        None => Err(Spent::Memory.error()),
    }
}

/// Subtracts `bytes` from the memory that is left. To make them is work too.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    room(bytes)?;
    LEFT.set(LEFT.get() - bytes);
    work(bytes)
}

/// Subtracts from the work that is left, and checks the deadline from time to time.
pub(super) fn work(units: usize) -> Result<(), Error> {
    let before = WORK.get();
    let after = before.checked_sub(units);
    let stop = match after {
        None => Some(Spent::Work),
        Some(after) if after >> CHECK == before >> CHECK => None,
        Some(_) => LIMIT.with_borrow(Limit::stop),
    };
    WORK.set(after.unwrap_or(0));
    // Whoever only measures reports no error; the next one does.
    STOPPED.set(STOPPED.get().or(stop));
    STOPPED.get().map_or(Ok(()), |why| Err(why.error()))
}

impl Limit {
    fn stop(&self) -> Option<Spent> {
        if self.cancel.as_ref().is_some_and(Cancel::is_set) {
            return Some(Spent::Cancelled);
        }
        self.deadline.as_ref().is_some_and(Deadline::passed).then_some(Spent::Time)
    }
}

/// Charges the comparison of two values: of two texts the shorter one, of two containers the one with fewer
/// items, with everything in it.
pub(super) fn compare(a: &Value, b: &Value) -> Result<(), Error> {
    work(STEP)?;
    match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => work(a.len().min(b.len())),
        _ if holds(a) && holds(b) => walk(if items(a) <= items(b) { a } else { b }).map(drop),
        _ => Ok(()),
    }
}

/// Charges the search for a value in another one.
fn search(wanted: &Value, within: &Value) -> Result<(), Error> {
    match (within.as_str(), within.kind()) {
        (Some(text), _) => work(text.len()),
        (None, ValueKind::Seq | ValueKind::Iterable) => {
            within.try_iter()?.try_for_each(|item| compare(wanted, &item))
        }
        _ => key(wanted),
    }
}

/// Charges the use of a value as a key.
fn key(value: &Value) -> Result<(), Error> {
    if holds(value) { walk(value).map(drop) } else { work(value.as_str().map_or(STEP, str::len)) }
}

/// Charges a sort of a list, or a search for equal items in it.
pub(super) fn sorted(list: &Value) -> Result<(), Error> {
    let all = walk(list)?;
    work(all.saturating_mul(items(list).max(1).ilog2() as usize))
}

/// Charges a value with everything in it, and returns the work.
pub(super) fn walk(value: &Value) -> Result<usize, Error> {
    let mut todo = vec![value.clone()];
    let mut total = 0usize;
    while let Some(value) = todo.pop() {
        let own = ITEM + value.as_str().map_or(0, str::len);
        work(own)?;
        total = total.saturating_add(own);
        if holds(&value) {
            // The items that wait count before they are listed: several lists may share them.
            work(items(&value))?;
            todo.extend(parts(&value));
        }
    }
    Ok(total)
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
/// contains another list twice counts it twice. It stops counting beyond the budget. To count is work.
pub(super) fn deep_size(value: &Value) -> usize {
    let mut todo = vec![value.clone()];
    let mut total = 0usize;
    while let Some(value) = todo.pop() {
        let own = ITEM + value.as_str().map_or(0, str::len);
        total = total.saturating_add(own);
        if total > MAX_MEMORY || work(own).is_err() {
            return usize::MAX;
        }
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

/// Charges for an instruction of the engine: the result of `+`, `*`, `~`, a slice `[:]`, the comparisons `==`
/// (of any kind), an item `[.]`, and `in`, which writes out any operand to search a text for it. `<in` is a link of
/// a chain, which is one of the two. `=` is a change of a namespace and `changed` of a loop.
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
        "in" | "<in" if b.as_str().is_some() && holds(a) => written(a),
        "=" => return refuse_mutable(&operands[..1]),
        "changed" => {
            operands[1..].iter().try_for_each(|value| walk(value).map(drop))?;
            return refuse_mutable_arguments(&operands[1..]);
        }
        _ => 0,
    })?;
    match name {
        "==" => compare(a, b),
        "in" => search(a, b),
        "<in" => compare(a, b).and_then(|()| search(a, b)),
        // A character of a text is found by counting.
        "[.]" => key(b).and_then(|()| work(a.as_str().map_or(0, str::len))),
        _ => Ok(()),
    }
}
