//! Words of a command line, as a shell reads them.

/// Quotes a word for a shell, if it needs that.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert_eq!(quoted("/m/x-1.gguf"), "/m/x-1.gguf");
        assert_eq!(quoted("my model's"), "'my model'\\''s'");
        assert_eq!((quoted(""), quoted("$HOME")), ("''".into(), "'$HOME'".into()));
        assert_eq!(quoted("ü"), "'ü'");
    }
}
