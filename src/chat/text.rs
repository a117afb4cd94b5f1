//! Values as text: Python's `str` and `repr`, and JSON as Python writes it.

use super::budget;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Nesting beyond which writing a value is refused.
const MAX_DEPTH: usize = 128;

/// Implements `str(value)`.
pub(super) fn python_str(value: &Value) -> Result<String, Error> {
    budget::room(budget::written(value))?;
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => repr(&mut out, value, 0)?,
    }
    budget::charge(out.len())?;
    Ok(out)
}

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value is nested more than {MAX_DEPTH} deep"))
}

/// Implements `repr(value)`.
fn repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => quote_python(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &key, depth + 1)?;
                out.push_str(": ");
                repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &item, depth + 1)?;
            }
            out.push_str(if tuple && value.len() == Some(1) { "," } else { "" });
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Undefined => out.push_str("Undefined"),
        // Booleans and None are written as Python writes them; other values have no text of their own.
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Formats a float as Python does: the shortest digits, an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "nan"
        } else if x > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_string();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}

fn quote_python(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c == ' ' || !(c.is_control() || c.is_whitespace() || invisible(c)) => out.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// True for characters that Python does not call printable, beyond controls and whitespace.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0001}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}')
}

/// Style of JSON: the arguments of Python's `json.dumps`.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    pub(super) indent: Option<String>,
    pub(super) item: String,
    pub(super) key: String,
    pub(super) ascii: bool,
    pub(super) sort: bool,
}

impl JsonStyle {
    /// Implements `json.dumps(value)`.
    pub(super) fn write(&self, value: &Value) -> Result<String, Error> {
        let extra = self.indent.as_ref().map_or(0, String::len).saturating_mul(MAX_DEPTH);
        let extra = budget::sum([extra, self.item.len(), self.key.len()]);
        let values = budget::deep_size(value) / budget::ITEM;
        budget::room(budget::written(value).saturating_add(values.saturating_mul(extra)))?;
        let mut out = String::new();
        self.value(&mut out, value, 0)?;
        budget::charge(out.len())?;
        Ok(out)
    }

    fn value(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&json_number(value)),
            ValueKind::String => self.quote(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(out, value, depth)?,
            ValueKind::Map => self.map(out, value, depth)?,
            kind => {
                let what = format!("{kind} cannot be written as JSON");
                return Err(Error::new(kind_of(value), what));
            }
        }
        Ok(())
    }

    fn sequence(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            self.between(out, any, depth + 1);
            any = true;
            self.value(out, &item, depth + 1)?;
        }
        self.close(out, any, depth);
        out.push(']');
        Ok(())
    }

    fn map(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort {
            keys.sort();
        }
        out.push('{');
        for (i, key) in keys.iter().enumerate() {
            self.between(out, i > 0, depth + 1);
            match key.kind() {
                ValueKind::String => self.quote(out, key.as_str().unwrap_or_default()),
                ValueKind::None => out.push_str("\"null\""),
                ValueKind::Bool => out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
                ValueKind::Number => out.extend(["\"", &json_number(key), "\""]),
                kind => {
                    let what = format!("{kind} cannot be a key in JSON");
                    return Err(Error::new(ErrorKind::BadSerialization, what));
                }
            }
            out.push_str(&self.key);
            self.value(out, &value.get_item(key)?, depth + 1)?;
        }
        self.close(out, !keys.is_empty(), depth);
        out.push('}');
        Ok(())
    }

    /// Writes the text before an item.
    fn between(&self, out: &mut String, after: bool, depth: usize) {
        if after {
            out.push_str(&self.item);
        }
        self.line(out, depth);
    }

    /// Writes the text before the closing bracket.
    fn close(&self, out: &mut String, any: bool, depth: usize) {
        if any {
            self.line(out, depth);
        }
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn quote(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn kind_of(value: &Value) -> ErrorKind {
    if value.is_undefined() { ErrorKind::UndefinedError } else { ErrorKind::BadSerialization }
}

fn json_number(value: &Value) -> String {
    match number(value).as_str() {
        "nan" => "NaN".to_string(),
        "inf" => "Infinity".to_string(),
        "-inf" => "-Infinity".to_string(),
        text => text.to_string(),
    }
}
