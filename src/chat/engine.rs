//! The template engine, set up as transformers sets up Jinja2.

use super::error::Exception;
use super::methods;
use super::text::{JsonStyle, python_str};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use std::time::SystemTime;

/// Steps of the engine after which a template is stopped: a conversation takes some hundreds for each message.
pub const MAX_STEPS: u64 = 10_000_000;

/// The engine with the template `chat`.
pub(super) fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(methods::call);
    env.set_fuel(Some(MAX_STEPS));
    env.set_debug(true);
    env.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python_str(value)?)?),
    });
    add_filters(&mut env);
    add_tests(&mut env);
    env.add_function("raise_exception", |text: &Value| -> Result<Value, Error> {
        let text = python_str(text)?;
        Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Exception(text)))
    });
    env.add_template_owned("chat", source)?;
    Ok(env)
}

fn add_filters(env: &mut Environment<'_>) {
    env.add_filter("tojson", to_json);
    env.add_filter("string", |v: &Value| python_str(v));
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("int", |v: &Value, rest: Rest<Value>| convert("int", v, &rest));
    env.add_filter("float", |v: &Value, rest: Rest<Value>| convert("float", v, &rest));
}

fn add_tests(env: &mut Environment<'_>) {
    let iterable = |v: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(v.kind(), Seq | Iterable | Map | String | Undefined)
    };
    env.add_test("iterable", iterable);
    // What has a length and items by place or key.
    env.add_test("sequence", iterable);
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain);
    env.add_test("integer", |v: &Value| v.kind() == ValueKind::Number && v.is_integer());
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    let what = || format!("{} has no length", value.kind());
    value.len().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, what()))
}

/// `int` and `float`: what is no number becomes the default, which is 0.
fn convert(to: &str, value: &Value, rest: &[Value]) -> Result<Value, Error> {
    let (places, names) = match rest.split_last() {
        Some((last, places)) if last.is_kwargs() => (places, Some(Kwargs::try_from(last.clone())?)),
        _ => (rest, None),
    };
    let named = |name: &str| names.as_ref().and_then(|k| k.get::<Value>(name).ok());
    let zero = || if to == "int" { Value::from(0) } else { Value::from(0.0) };
    let default = places.first().cloned().or_else(|| named("default")).unwrap_or_else(zero);
    let text = value.as_str().map(|t| t.trim().replace('_', ""));
    let real = || match &text {
        Some(t) => t.parse::<f64>().ok(),
        None => f64::try_from(value.clone()).ok().filter(|_| !value.is_none()),
    };
    if to == "float" {
        return Ok(real().map_or(default, Value::from));
    }
    if value.is_integer() || value.kind() == ValueKind::Bool {
        return Ok(value.as_i64().map_or_else(|| value.clone(), Value::from));
    }
    let base = places.get(1).cloned().or_else(|| named("base")).and_then(|b| b.as_i64()).unwrap_or(10);
    let whole = text.as_ref().and_then(|t| integer(t, u32::try_from(base).ok()?));
    let cut = || real().filter(|x| x.is_finite()).map(|x| Value::from(x as i128));
    Ok(whole.map(Value::from).or_else(cut).unwrap_or(default))
}

/// An integer of a base from 2 to 36, with or without the prefix of the base.
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

/// `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn to_json(value: &Value, places: Rest<Value>) -> Result<String, Error> {
    let (places, names) = match places.split_last() {
        Some((last, places)) if last.is_kwargs() => (places, Some(Kwargs::try_from(last.clone())?)),
        _ => (&places[..], None),
    };
    let argument = |place: usize, name: &str| {
        let named = || names.as_ref().and_then(|k| k.get::<Value>(name).ok());
        places.get(place).cloned().or_else(named).filter(|v| !v.is_none() && !v.is_undefined())
    };
    let indent = match argument(1, "indent") {
        Some(v) if v.as_str().is_some() => v.as_str().map(str::to_string),
        Some(v) => Some(" ".repeat(v.as_i64().unwrap_or(0).clamp(0, 64) as usize)),
        None => None,
    };
    let between = match argument(2, "separators") {
        Some(pair) => {
            let texts: Vec<String> = pair.try_iter()?.filter_map(|v| v.as_str().map(str::to_string)).collect();
            <[String; 2]>::try_from(texts)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators are two texts"))?
        }
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_string),
    };
    let [item, key] = between;
    let yes = |place, name| argument(place, name).is_some_and(|v| v.is_true());
    JsonStyle { indent, item, key, ascii: yes(0, "ensure_ascii"), sort: yes(3, "sort_keys") }.write(value)
}

/// `strftime_now(format)`: the time here, as C and Python write it.
pub(super) fn clock(now: Option<SystemTime>) -> Value {
    Value::from_function(move |format: &str| -> Result<String, Error> {
        let wrong = |e: jiff::Error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {e}"));
        let time = jiff::Timestamp::try_from(now.unwrap_or_else(SystemTime::now)).map_err(wrong)?;
        jiff::fmt::strtime::format(format, &time.to_zoned(jiff::tz::TimeZone::system())).map_err(wrong)
    })
}
