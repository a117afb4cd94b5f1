//! Template engine, configured as transformers configures Jinja2.

use super::args::Args;
use super::budget::{Limit, MAX_TIME};
use super::error::{ChatError, Exception};
use super::methods;
use super::text::{JsonStyle, python_str};
use super::{budget, compile, guard};
use ggml_core::{Deadline, Phase};
use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, machinery};
use std::borrow::Cow;
use std::time::SystemTime;

/// Limit of engine steps after which a template is stopped: a conversation takes some hundreds for each
/// message.
pub const MAX_STEPS: u64 = 15_000_000;

/// Stack size of a template with [`MAX_STEPS`]: enough for the deepest nesting of values that these steps can
/// build.
const STACK: usize = 1 << 30;

/// Divisor of the steps and of the stack for conversations of ordinary length: address space may be scarce. A
/// template that needs more is rendered again with the full limits; a template has no side effects, so this
/// is safe.
const ORDINARY: u64 = 16;

/// Creates the engine, without a template.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_unknown_method_callback(methods::call);
    env.set_debug(true);
    env.set_formatter(|out, _, value| {
        let text = value
            .as_str()
            .map_or_else(|| python_str(value).map(Cow::Owned), |text| Ok(Cow::Borrowed(text)))?;
        budget::charge(text.len())?;
        Ok(out.write_str(&text)?)
    });
    compile::add_filters(&mut env);
    guard::add(&mut env);
    add_filters(&mut env);
    add_tests(&mut env);
    env.add_function("raise_exception", |text: &Value| -> Result<Value, Error> {
        let text = python_str(text)?;
        Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Exception(text)))
    });
    env
}

fn add_filters(env: &mut Environment<'_>) {
    env.add_filter("tojson", to_json);
    env.add_filter("string", |v: &Value| python_str(v));
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("wordcount", |text: &str| -> Result<usize, Error> {
        budget::work(text.len())?;
        Ok(text.split(methods::is_space).filter(|w| !w.is_empty()).count())
    });
    env.add_filter("int", |v: &Value, rest: Rest<ValueOrKwargs>| {
        convert(v, &Args::new("int", &rest.into_values())?, Value::from(0))
    });
    env.add_filter("float", |v: &Value, rest: Rest<ValueOrKwargs>| {
        convert(v, &Args::new("float", &rest.into_values())?, Value::from(0.0))
    });
}

fn add_tests(env: &mut Environment<'_>) {
    let iterable = |v: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(v.kind(), Seq | Iterable | Map | String | Undefined)
    };
    env.add_test("iterable", iterable);
    // Values that have a length and items by index or key.
    env.add_test("sequence", iterable);
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain);
    env.add_test("integer", |v: &Value| v.kind() == ValueKind::Number && v.is_integer());
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    budget::work(value.as_str().map_or(1, str::len))?;
    let what = || format!("{} has no length", value.kind());
    value.len().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, what()))
}

/// Converts like `int` and `float`; `zero` selects which one. Values that are not numeric become the default.
fn convert(value: &Value, args: &Args<'_>, zero: Value) -> Result<Value, Error> {
    let integral = zero.is_integer();
    let default = args.opt(0, "default").unwrap_or(zero);
    budget::work(value.as_str().map_or(1, str::len))?;
    let text = value.as_str().map(|t| t.trim().replace('_', ""));
    let real = match &text {
        Some(t) => t.parse::<f64>().ok(),
        None => f64::try_from(value.clone()).ok().filter(|_| !value.is_none()),
    };
    if !integral {
        return Ok(real.map_or(default, Value::from));
    }
    if value.is_integer() || value.kind() == ValueKind::Bool {
        return Ok(value.as_i64().map_or_else(|| value.clone(), Value::from));
    }
    let base = args.int(1, "base")?.unwrap_or(10);
    let digits = text.as_ref().and_then(|t| integer(t, u32::try_from(base).ok()?));
    let cut = || real.filter(|x| x.is_finite()).map(|x| Value::from(x as i128));
    Ok(digits.map(Value::from).or_else(cut).unwrap_or(default))
}

/// Parses an integer of a base from 2 to 36, with or without the prefix of the base.
fn integer(text: &str, base: u32) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |t| (-1, t));
    let digits = digits.strip_prefix('+').unwrap_or(digits).to_ascii_lowercase();
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        3..=36 => "",
        _ => return None,
    };
    i128::from_str_radix(digits.strip_prefix(prefix).unwrap_or(&digits), base).ok().map(|n| sign * n)
}

/// Implements `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: &Value, rest: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let rest = rest.into_values();
    let args = Args::new("tojson", &rest)?;
    let indent = match args.opt(1, "indent") {
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_string),
        Some(_) => args.int(1, "indent")?.map(|n| " ".repeat(n.clamp(0, 64) as usize)),
        None => None,
    };
    let [item, key] = match args.opt(2, "separators") {
        Some(pair) => {
            let texts: Vec<String> =
                pair.try_iter()?.filter_map(|v| v.as_str().map(str::to_string)).collect();
            <[String; 2]>::try_from(texts)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators must be two texts"))?
        }
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_string),
    };
    let yes = |position, name| args.opt(position, name).is_some_and(|v| v.is_true());
    JsonStyle { indent, item, key, ascii: yes(0, "ensure_ascii"), sort: yes(3, "sort_keys") }.write(value)
}

/// Implements `strftime_now(format)`: the local time, formatted as in C and Python.
pub(super) fn clock(now: Option<SystemTime>) -> Value {
    Value::from_function(move |format: &str| -> Result<String, Error> {
        // A letter may expand to a date in words, or to a number with up to 255 digits.
        budget::charge(format.len().saturating_mul(256))?;
        let wrong = |e: jiff::Error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
        let time = jiff::Timestamp::try_from(now.unwrap_or_else(SystemTime::now)).map_err(wrong)?;
        jiff::fmt::strtime::format(format, &time.to_zoned(jiff::tz::TimeZone::system())).map_err(wrong)
    })
}

/// Checks that a template can be compiled.
pub(super) fn check(source: &str) -> Result<(), ChatError> {
    let limit = Limit { deadline: Some(Deadline::new(Phase::Prepare, MAX_TIME)), cancel: None };
    on_own_thread(MAX_STEPS / ORDINARY, &limit, || compile::compile(source).map(drop))
}

/// Renders a template.
pub(super) fn render(
    engine: &Environment<'_>,
    source: &str,
    variables: Value,
    limit: &Limit,
) -> Result<String, ChatError> {
    match render_within(MAX_STEPS / ORDINARY, engine, source, variables.clone(), limit) {
        Err(ChatError::TooLong { .. }) => render_within(MAX_STEPS, engine, source, variables, limit),
        done => done,
    }
}

fn render_within(
    steps: u64,
    engine: &Environment<'_>,
    source: &str,
    variables: Value,
    limit: &Limit,
) -> Result<String, ChatError> {
    let mut engine = engine.clone();
    engine.set_fuel(Some(steps));
    on_own_thread(steps, limit, || {
        let program = compile::compile(source)?;
        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        machinery::eval(&engine, &program.main, variables, &program.blocks, &mut out, AutoEscape::None)
            .map_err(|e| ChatError::from_engine(&e))?;
        Ok(text)
    })
}

/// Runs `work` on a thread with a stack of its own, so that neither recursion nor dropping a deeply nested
/// value can end the process, and a panic of the engine ends only the thread. Errors of the engine hold
/// values, so they are dropped there too.
fn on_own_thread<T: Send>(
    steps: u64,
    limit: &Limit,
    work: impl FnOnce() -> Result<T, ChatError> + Send,
) -> Result<T, ChatError> {
    let work = || {
        budget::begin(limit);
        work()
    };
    let stack = (STACK as u64 * steps / MAX_STEPS) as usize;
    let failed = |what: String| ChatError::Render { line: 0, what };
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("chat".into()).stack_size(stack).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| failed(format!("no thread for the template: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("the template engine panicked".to_string())))
    })
}
