//! Escapes for text of files and drivers, which may be anything: a control character moves a terminal's cursor,
//! renames its window or types for the user, and a character of the writing direction makes a name look like
//! another one.

use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result, Write};

/// Text in which every character that [`controls`] a terminal or the direction of text is written as an escape (`\u{1b}`). Ends of lines
/// and tabs are kept.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(Escapes(f), "{}", self.0)
    }
}

/// Writer that escapes everything that passes through it.
struct Escapes<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escapes<'_, '_> {
    fn write_str(&mut self, text: &str) -> Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_escaped) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = from.chars();
            chars.next().into_iter().try_for_each(|c| write!(self.0, "{}", c.escape_unicode()))?;
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Returns a text with the escapes of [`Escaped`].
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(is_escaped) { Cow::Owned(Escaped(text).to_string()) } else { Cow::Borrowed(text) }
}

/// Returns a text as one line: ends of lines and tabs are escaped too.
pub fn escaped_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t']) {
        true => Cow::Owned(escaped(text).replace('\n', "\\n").replace('\t', "\\t")),
        false => escaped(text),
    }
}

fn is_escaped(c: char) -> bool {
    controls(c) && !matches!(c, '\n' | '\t')
}

/// True for the characters that control a terminal or the direction of text, and for those that are invisible
/// ends of lines.
pub fn controls(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_change() {
        assert!(matches!(escaped("a ü 漢\n\tb"), Cow::Borrowed(_)));
        let hostile = "\u{1b}]0;title\u{7} \u{9b}2J \u{202e}gpj\u{7f}\r\n.";
        let plain = "\\u{1b}]0;title\\u{7} \\u{9b}2J \\u{202e}gpj\\u{7f}\\u{d}\n.";
        assert_eq!(escaped(hostile), plain);
        assert_eq!(Escaped(format_args!("{hostile}")).to_string(), plain);
        assert_eq!(escaped_line("a\nb\tc\u{1b}"), "a\\nb\\tc\\u{1b}");
    }
}
