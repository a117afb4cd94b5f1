//! Preprocessing of a template's text for the engine.

use std::borrow::Cow;

/// Converts newlines as Jinja2 does, and `{% generation %}` blocks (which mark the model's text, for
/// training) to blocks that only open a scope.
pub(super) fn prepare(source: &str) -> String {
    let source = newlines(source);
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_ref();
    let mut raw = false;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let length = if tag.starts_with("{%") {
            tag_length(tag, "%}")
        } else if raw {
            1
        } else if tag.starts_with("{#") {
            tag.find("#}").map_or(tag.len(), |i| i + 2)
        } else if tag.starts_with("{{") {
            tag_length(tag, "}}")
        } else {
            1
        };
        let (tag, after) = tag.split_at(length);
        match word(tag) {
            Some("endraw") => raw = false,
            Some("raw") if !raw => raw = true,
            _ => {}
        }
        match word(tag) {
            Some("generation") if !raw => out.push_str(&tag.replacen("generation", "with", 1)),
            Some("endgeneration") if !raw => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the only word of a block tag.
fn word(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    Some(inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace()))
}

/// Returns the number of bytes of the tag at the beginning of a text. Quoted text may contain the end marker.
/// Without an end it is the whole text.
fn tag_length(tag: &str, end: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if tag[i..].starts_with(end) => return i + end.len(),
            None => {}
        }
    }
    tag.len()
}

fn newlines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        source.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        source.into()
    }
}

#[cfg(test)]
mod tests {
    use super::prepare;

    #[test]
    fn only_generation_blocks_and_newlines_change() {
        let same = "{# {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}{ {";
        assert_eq!(prepare(same), same);
        assert_eq!(prepare("a\r\nb\rc"), "a\nb\nc");
        let tags = "{%- generation -%}{{ '%}' }}{% endgeneration %}";
        assert_eq!(prepare(tags), "{%- with -%}{{ '%}' }}{% endwith %}");
        assert_eq!(prepare("{% set generation = 1 %}"), "{% set generation = 1 %}");
        assert_eq!(prepare("{{ 'open"), "{{ 'open");
    }
}
