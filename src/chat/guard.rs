//! The engine's own filters, tests and functions, with their results and their work charged to the budget.

use super::args::Args;
use super::budget::{self, ITEM};
use minijinja::value::{Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters, functions, tests};

/// Kind of result that a filter makes from its operands.
#[derive(Clone, Copy, PartialEq)]
enum Makes {
    /// Text, with the operands written out.
    Text,
    /// List of the unchanged items of the operand.
    List,
    /// Either one; the operands may be written out temporarily.
    Both,
    /// Nothing new: one of the items of the operand.
    Nothing,
}

/// Filters and functions of the engine that are not part of Jinja2 and unused in conversations.
const FOREIGN: [&str; 5] = ["chain", "zip", "split", "lines", "pprint"];

/// Adds the filters and functions with potentially large results to an environment. Others only choose among
/// values.
pub(super) fn add(env: &mut Environment<'_>) {
    for name in FOREIGN {
        env.remove_filter(name);
    }
    for name in ["startingwith", "endingwith"] {
        env.remove_test(name);
    }
    env.remove_global("debug");
    add_tests(env);
    env.add_test("in", |state: &State<'_, '_>, value: &Value, list: &Value| -> Result<bool, Error> {
        budget::operator("in", &[value.clone(), list.clone()])?;
        tests::is_in(state, value, list)
    });
    env.add_function("dict", guarded("dict", Makes::List, Value::from_function(functions::dict)));
    env.add_function(
        "namespace",
        guarded("namespace", Makes::List, Value::from_function(functions::namespace)),
    );
    for (name, makes, original) in originals() {
        env.add_filter(name, guarded(name, makes, original));
    }
}

/// Wraps the tests that compare or read whole values, so that they are charged.
fn add_tests(env: &mut Environment<'_>) {
    type Compares = fn(&Value, &Value) -> bool;
    let comparisons: [(&[&'static str], Compares); 6] = [
        (&["eq", "equalto", "=="], tests::is_eq),
        (&["ne", "!="], tests::is_ne),
        (&["lt", "lessthan", "<"], tests::is_lt),
        (&["le", "<="], tests::is_le),
        (&["gt", "greaterthan", ">"], tests::is_gt),
        (&["ge", ">="], tests::is_ge),
    ];
    for (names, test) in comparisons {
        for name in names {
            env.add_test(*name, move |a: &Value, b: &Value| -> Result<bool, Error> {
                budget::compare(a, b).map(|()| test(a, b))
            });
        }
    }
    type Reads = fn(&Value) -> bool;
    for (name, test) in [("lower", tests::is_lower as Reads), ("upper", tests::is_upper)] {
        env.add_test(name, move |value: &Value| -> Result<bool, Error> {
            budget::work(value.as_str().map_or(0, str::len)).map(|()| test(value))
        });
    }
}

fn originals() -> [(&'static str, Makes, Value); 31] {
    use Makes::{Both, List, Nothing, Text};
    [
        ("attr", Nothing, Value::from_function(filters::attr)),
        ("last", Nothing, Value::from_function(filters::last)),
        ("max", Nothing, Value::from_function(filters::max)),
        ("min", Nothing, Value::from_function(filters::min)),
        ("safe", Text, Value::from_function(filters::safe)),
        ("escape", Text, Value::from_function(filters::escape)),
        ("e", Text, Value::from_function(filters::escape)),
        ("upper", Text, Value::from_function(filters::upper)),
        ("lower", Text, Value::from_function(filters::lower)),
        ("title", Text, Value::from_function(filters::title)),
        ("capitalize", Text, Value::from_function(filters::capitalize)),
        ("replace", Text, Value::from_function(filters::replace)),
        ("trim", Text, Value::from_function(filters::trim)),
        ("indent", Text, Value::from_function(filters::indent)),
        ("format", Text, Value::from_function(filters::format)),
        ("list", List, Value::from_function(filters::list)),
        ("items", List, Value::from_function(filters::items)),
        ("reverse", List, Value::from_function(filters::reverse)),
        ("select", List, Value::from_function(filters::select)),
        ("reject", List, Value::from_function(filters::reject)),
        ("selectattr", List, Value::from_function(filters::selectattr)),
        ("rejectattr", List, Value::from_function(filters::rejectattr)),
        ("map", List, Value::from_function(filters::map)),
        ("join", Both, Value::from_function(filters::join)),
        ("sum", Both, Value::from_function(filters::sum)),
        ("sort", Both, Value::from_function(filters::sort)),
        ("dictsort", Both, Value::from_function(filters::dictsort)),
        ("unique", Both, Value::from_function(filters::unique)),
        ("groupby", Both, Value::from_function(filters::groupby)),
        ("batch", Both, Value::from_function(filters::batch)),
        ("slice", Both, Value::from_function(filters::slice)),
    ]
}

/// Wraps a filter so that it checks that there is memory for its result, and charges the result.
fn guarded(
    name: &'static str,
    makes: Makes,
    original: Value,
) -> impl Fn(&mut State<'_, '_>, Rest<ValueOrKwargs>) -> Result<Value, Error> {
    move |state: &mut State<'_, '_>, operands: Rest<ValueOrKwargs>| {
        let operands = operands.into_values();
        let receiver = usize::from(operands.first().is_some_and(|v| !v.is_kwargs()));
        budget::refuse_mutable_arguments(&operands[receiver..])?;
        budget::work(operands.first().map_or(0, budget::items))?;
        match (name, operands.first()) {
            ("sort" | "dictsort" | "unique" | "groupby", Some(list)) => budget::sorted(list)?,
            ("max" | "min", Some(list)) => drop(budget::walk(list)?),
            _ => {}
        }
        if makes == Makes::Nothing {
            return original.call(state, &operands);
        }
        if makes != Makes::List {
            budget::room_to_write(&operands)?;
        }
        if makes != Makes::Text {
            budget::room(operands.first().map_or(0, budget::items).saturating_mul(ITEM))?;
        }
        budget::room(product(name, &operands)?)?;
        budget::charged(budget::listed(original.call(state, &operands)?)?)
    }
}

/// Name of `', '.join(list)`, which is not the filter.
pub(super) const TEXT_JOIN: &str = "str.join";

/// Returns the bytes of a call's result that are a product of its operands instead of proportional to them.
pub(super) fn product(name: &str, operands: &[Value]) -> Result<usize, Error> {
    let Some((value, rest)) = operands.split_first() else { return Ok(0) };
    let args = Args::new(name, rest)?;
    let length = budget::written(value);
    let number = |position, name| args.opt(position, name).and_then(|v| v.as_usize()).unwrap_or(0);
    let size = |position, name| args.opt(position, name).map_or(0, |v| budget::written(&v));
    let matches = |name| {
        let wanted = args.opt(0, name);
        match (value.as_str(), wanted.as_ref().and_then(|v| v.as_str())) {
            (Some(text), Some(wanted)) if !wanted.is_empty() => text.matches(wanted).count(),
            _ => length,
        }
    };
    Ok(match name {
        "replace" => (matches("old") + 1).saturating_mul(size(1, "new")),
        "split" | "rsplit" => (matches("sep") + 1).saturating_mul(ITEM),
        "splitlines" => length.saturating_mul(ITEM),
        "join" => budget::items(value).saturating_mul(size(0, "d")),
        TEXT_JOIN => rest.first().map_or(0, budget::items).saturating_mul(length),
        "indent" => length.saturating_add(1).saturating_mul(number(0, "width")),
        "center" | "ljust" | "rjust" => number(0, "width").saturating_mul(size(1, "fillchar")),
        "batch" | "slice" => number(0, "count").saturating_mul(ITEM),
        "format" => {
            let text = value.as_str().unwrap_or_default();
            let fields = text.matches(['%', '{']).count();
            let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
            let widths = budget::sum(numbers.map(|digits| digits.parse().unwrap_or(usize::MAX)));
            // A fill character takes up to four bytes, and may be written twice.
            let filled = widths.saturating_mul(8);
            fields.saturating_mul(budget::sum(rest.iter().map(budget::written))).saturating_add(filled)
        }
        _ => 0,
    })
}
