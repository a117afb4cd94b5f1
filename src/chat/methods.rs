//! Methods of Python's strings, dictionaries and lists that templates call. Methods that change their object
//! are omitted: Jinja2's sandbox, in which templates usually run, also refuses them.

use super::args::Args;
use super::text::python_str;
use super::{budget, guard};
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Implements every method that a value does not have itself.
pub(super) fn call(
    _: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let text = value.as_str();
    if text.is_some() {
        let operands = [std::slice::from_ref(value), args].concat();
        budget::room_to_write(&operands)?;
        budget::room(guard::product(if method == "join" { guard::TEXT_JOIN } else { method }, &operands)?)?;
    } else {
        budget::work(budget::items(value))?;
        budget::room(budget::items(value).saturating_mul(2 * budget::ITEM))?;
    }
    let args = Args::new(method, args)?;
    let found = match (text, value.kind()) {
        (Some(text), _) => text_method(text, &args)?,
        (None, ValueKind::Map) => map_method(value, &args)?,
        (None, ValueKind::Seq | ValueKind::Iterable) => list_method(value, &args)?,
        _ => None,
    };
    let found = found.ok_or_else(|| Error::from(ErrorKind::UnknownMethod))?;
    if let (Some(text), None) = (text, found.as_str()) {
        // The parts of a text are copies.
        budget::charge(text.len())?;
    }
    budget::charged(found)
}

fn map_method(map: &Value, args: &Args<'_>) -> Result<Option<Value>, Error> {
    let pairs = || -> Result<Vec<(Value, Value)>, Error> {
        map.try_iter()?.map(|key| map.get_item(&key).map(|value| (key, value))).collect()
    };
    Ok(Some(match args.method {
        "keys" => pairs()?.into_iter().map(|(k, _)| k).collect(),
        "values" => pairs()?.into_iter().map(|(_, v)| v).collect(),
        "items" => pairs()?.into_iter().map(|(k, v)| Value::from(Tuple::from([k, v]))).collect(),
        "copy" => Value::from_pairs(pairs()?),
        "get" => {
            let key = args.positional.first().cloned().unwrap_or_default();
            let default = || args.positional.get(1).cloned().unwrap_or(Value::from(()));
            let pairs = pairs()?;
            pairs.iter().try_for_each(|(k, _)| budget::compare(k, &key))?;
            pairs.into_iter().find(|(k, _)| *k == key).map_or_else(default, |(_, v)| v)
        }
        _ => return Ok(None),
    }))
}

fn list_method(list: &Value, args: &Args<'_>) -> Result<Option<Value>, Error> {
    let wanted = args.positional.first();
    if let ("count" | "index", Some(wanted)) = (args.method, wanted) {
        list.try_iter()?.try_for_each(|item| budget::compare(&item, wanted))?;
    }
    let mut items = list.try_iter()?;
    Ok(Some(match (args.method, wanted) {
        ("copy", None) => items.collect(),
        ("count", Some(wanted)) => Value::from(items.filter(|item| item == wanted).count()),
        ("index", Some(wanted)) => match items.position(|item| item == *wanted) {
            Some(index) => Value::from(index),
            None => {
                let what = format!("{} is not in the list", python_str(wanted)?);
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
        },
        _ => return Ok(None),
    }))
}

fn text_method(s: &str, args: &Args<'_>) -> Result<Option<Value>, Error> {
    let found = changed(s, args)?.map(Value::from);
    let found = if found.is_none() { parts(s, args)? } else { found };
    if found.is_none() { queried(s, args) } else { Ok(found) }
}

/// Implements the methods that return another text.
fn changed(s: &str, args: &Args<'_>) -> Result<Option<String>, Error> {
    Ok(Some(match args.method {
        "upper" => s.to_uppercase(),
        "lower" | "casefold" => s.to_lowercase(),
        "title" => title(s),
        "capitalize" => {
            let mut chars = s.chars();
            chars.next().map_or_else(String::new, |c| {
                c.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect()
            })
        }
        "swapcase" => s.chars().map(swap_case).collect(),
        "strip" | "lstrip" | "rstrip" => strip(s, args)?.to_string(),
        "removeprefix" => s.strip_prefix(&args.need_text(0, "prefix")?).unwrap_or(s).to_string(),
        "removesuffix" => s.strip_suffix(&args.need_text(0, "suffix")?).unwrap_or(s).to_string(),
        "replace" => {
            let (old, new) = (args.need_text(0, "old")?, args.need_text(1, "new")?);
            match args.int(2, "count")?.and_then(|n| usize::try_from(n).ok()) {
                Some(count) => s.replacen(&old, &new, count),
                None => s.replace(&old, &new),
            }
        }
        "center" | "ljust" | "rjust" | "zfill" => padded(s, args)?,
        "format" => format(FormatStyle::StrFormat, s, &all_arguments(args))?,
        "join" => {
            let list = args.positional.first().cloned().unwrap_or_default();
            let mut texts = Vec::new();
            for item in list.try_iter()? {
                texts.push(item.as_str().map(str::to_string).ok_or_else(|| args.wrong("iterable", &item))?);
            }
            texts.join(s)
        }
        _ => return Ok(None),
    }))
}

/// Returns the arguments as they were given.
fn all_arguments(args: &Args<'_>) -> Vec<Value> {
    let names = args.names.as_ref().map(|k| Value::from(k.clone()));
    args.positional.iter().cloned().chain(names).collect()
}

fn title(s: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

/// True for whitespace as Python defines it: Unicode's, and four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn strip<'s>(s: &'s str, args: &Args<'_>) -> Result<&'s str, Error> {
    let chars = args.text(0, "chars")?;
    let out = |c: char| chars.as_ref().map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if args.method == "rstrip" { s } else { s.trim_start_matches(out) };
    Ok(if args.method == "lstrip" { s } else { s.trim_end_matches(out) })
}

/// Largest width of padding.
const MAX_WIDTH: i64 = 1 << 20;

fn padded(s: &str, args: &Args<'_>) -> Result<String, Error> {
    let width = args.int(0, "width")?.unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(args.wrong("width", &Value::from(width)));
    }
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(s.chars().count());
    if args.method == "zfill" {
        let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
        return Ok(format!("{sign}{}{digits}", "0".repeat(missing)));
    }
    let fill = args.text(1, "fillchar")?.unwrap_or_else(|| " ".to_string());
    let left = match args.method {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd fill character to the left if the width is odd.
        _ => missing / 2 + (missing & width as usize & 1),
    };
    Ok(format!("{}{s}{}", fill.repeat(left), fill.repeat(missing - left)))
}

/// Implements the methods that return parts of the text.
fn parts(s: &str, args: &Args<'_>) -> Result<Option<Value>, Error> {
    Ok(Some(match args.method {
        "split" | "rsplit" => {
            let limit = args.int(1, "maxsplit")?.and_then(|n| usize::try_from(n).ok());
            let from_end = args.method == "rsplit";
            match args.text(0, "sep")? {
                Some(sep) if sep.is_empty() => {
                    return Err(Error::new(ErrorKind::InvalidOperation, "the separator is empty"));
                }
                Some(sep) => split(s, &sep, limit, from_end),
                None => split_blank(s, limit, from_end),
            }
            .into_iter()
            .map(Value::from)
            .collect()
        }
        "splitlines" => {
            let keep_ends = args.opt(0, "keepends").is_some_and(|v| v.is_true());
            lines(s, keep_ends).into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => {
            let sep = args.need_text(0, "sep")?;
            let last = args.method == "rpartition";
            let three = match if last { s.rsplit_once(&sep) } else { s.split_once(&sep) } {
                Some((before, after)) => [before, &sep, after],
                None if last => ["", "", s],
                None => [s, "", ""],
            };
            Value::from(Tuple::from(three.map(Value::from)))
        }
        _ => return Ok(None),
    }))
}

fn split<'s>(s: &'s str, sep: &str, limit: Option<usize>, from_end: bool) -> Vec<&'s str> {
    let pieces = limit.map_or(usize::MAX, |n| n.saturating_add(1));
    if !from_end {
        return s.splitn(pieces, sep).collect();
    }
    let mut out: Vec<&str> = s.rsplitn(pieces, sep).collect();
    out.reverse();
    out
}

/// Splits at runs of whitespace; the rest after the last split retains its whitespace.
fn split_blank(s: &str, limit: Option<usize>, from_end: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = s;
    loop {
        rest = if from_end { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            break;
        }
        let cut = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        match cut {
            Some(at) if limit.is_none_or(|n| out.len() < n) => {
                let blank = rest[at..].chars().next().map_or(1, char::len_utf8);
                let (word, left) =
                    if from_end { (&rest[at + blank..], &rest[..at]) } else { (&rest[..at], &rest[at..]) };
                out.push(word);
                rest = left;
            }
            _ => {
                out.push(rest);
                break;
            }
        }
    }
    if from_end {
        out.reverse();
    }
    out
}

fn lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut out = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(end) {
        let wide = rest[at..].chars().next().map_or(1, char::len_utf8);
        let next = at + if rest[at..].starts_with("\r\n") { 2 } else { wide };
        out.push(&rest[..if keep_ends { next } else { at }]);
        rest = &rest[next..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

/// Implements the methods that test or search the text.
fn queried(s: &str, args: &Args<'_>) -> Result<Option<Value>, Error> {
    let all = |test: fn(char) -> bool| Value::from(!s.is_empty() && s.chars().all(test));
    let cased = |this: fn(char) -> bool, other: fn(char) -> bool| {
        Value::from(s.chars().any(this) && !s.chars().any(other))
    };
    Ok(Some(match args.method {
        "startswith" => Value::from(args.texts(0, "prefix")?.iter().any(|p| s.starts_with(p.as_str()))),
        "endswith" => Value::from(args.texts(0, "suffix")?.iter().any(|p| s.ends_with(p.as_str()))),
        "find" | "rfind" | "index" | "rindex" | "count" => search(s, args)?,
        "isspace" => all(is_space),
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || (c > '\u{7f}' && c.is_numeric())),
        "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => Value::from(s.is_ascii()),
        "isupper" => cased(char::is_uppercase, char::is_lowercase),
        "islower" => cased(char::is_lowercase, char::is_uppercase),
        "istitle" => Value::from(s.chars().any(char::is_alphabetic) && s == title(s)),
        _ => return Ok(None),
    }))
}

/// Implements `find`, `index`, `count` and their variants from the end, between two positions counted in
/// characters.
fn search(s: &str, args: &Args<'_>) -> Result<Value, Error> {
    let wanted = args.need_text(0, "sub")?;
    let length = s.chars().count() as i64;
    let position = |at: Option<i64>, default: i64| {
        let at = at.unwrap_or(default);
        (if at < 0 { at.saturating_add(length) } else { at }).max(0)
    };
    let (start, end) =
        (position(args.int(1, "start")?, 0), position(args.int(2, "end")?, length).min(length));
    let counts = args.method == "count";
    let found = if start > end {
        None
    } else {
        let byte = |at: i64| s.char_indices().nth(at as usize).map_or(s.len(), |(i, _)| i);
        let window = &s[byte(start)..byte(end)];
        if counts {
            return Ok(Value::from(window.matches(&wanted).count()));
        }
        let at = if args.method.starts_with('r') { window.rfind(&wanted) } else { window.find(&wanted) };
        at.map(|at| start + window[..at].chars().count() as i64)
    };
    match found {
        None if counts => Ok(Value::from(0)),
        None if args.method.ends_with("index") => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("'{wanted}' is not in the text")))
        }
        found => Ok(Value::from(found.unwrap_or(-1))),
    }
}
