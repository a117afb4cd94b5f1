//! Arguments of a call in a template.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};

/// Arguments of a call by position or by name.
pub(super) struct Args<'a> {
    pub(super) method: &'a str,
    pub(super) positional: &'a [Value],
    pub(super) names: Option<Kwargs>,
}

impl<'a> Args<'a> {
    /// Divides the arguments of a call of `method`.
    pub(super) fn new(method: &'a str, args: &'a [Value]) -> Result<Args<'a>, Error> {
        let (positional, names) = match args.split_last() {
            Some((last, positional)) if last.is_kwargs() => {
                (positional, Some(Kwargs::try_from(last.clone())?))
            }
            _ => (args, None),
        };
        Ok(Args { method, positional, names })
    }

    /// Returns an optional argument; None counts as omitted.
    pub(super) fn opt(&self, position: usize, name: &str) -> Option<Value> {
        let named = || self.names.as_ref().and_then(|k| k.get::<Option<Value>>(name).ok().flatten());
        self.positional.get(position).cloned().or_else(named).filter(|v| !v.is_none() && !v.is_undefined())
    }

    /// Returns an optional text.
    pub(super) fn text(&self, position: usize, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = self.opt(position, name) else { return Ok(None) };
        value.as_str().map(|t| Some(t.to_string())).ok_or_else(|| self.wrong(name, &value))
    }

    /// Returns a mandatory text.
    pub(super) fn need_text(&self, position: usize, name: &str) -> Result<String, Error> {
        let what = || format!("{}() needs the argument '{name}'", self.method);
        self.text(position, name)?.ok_or_else(|| Error::new(ErrorKind::MissingArgument, what()))
    }

    /// Returns an optional integer.
    pub(super) fn int(&self, position: usize, name: &str) -> Result<Option<i64>, Error> {
        let Some(value) = self.opt(position, name) else { return Ok(None) };
        value.as_i64().map(Some).ok_or_else(|| self.wrong(name, &value))
    }

    /// Returns the error for an argument of the wrong type.
    pub(super) fn wrong(&self, name: &str, value: &Value) -> Error {
        let what = format!("{}(): '{name}' cannot be of type {}", self.method, value.kind());
        Error::new(ErrorKind::InvalidOperation, what)
    }

    /// Returns a list of texts, or a single text: the prefixes of `startswith`.
    pub(super) fn texts(&self, position: usize, name: &str) -> Result<Vec<String>, Error> {
        match self.opt(position, name) {
            Some(list) if list.as_str().is_none() => {
                let text = |v: Value| v.as_str().map(str::to_string).ok_or_else(|| self.wrong(name, &v));
                list.try_iter()?.map(text).collect()
            }
            _ => Ok(vec![self.need_text(position, name)?]),
        }
    }
}
