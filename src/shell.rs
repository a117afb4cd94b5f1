//! Words of a command line, as a shell reads them.

/// Quotes a word for a shell, if it needs that.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Returns the words of a command that [`quoted`] made.
#[cfg_attr(not(feature = "compare"), allow(dead_code, reason = "without reports"))]
pub(crate) fn words(command: &str) -> Vec<String> {
    let (mut all, mut word, mut inside, mut begun) = (Vec::new(), String::new(), false, false);
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match c {
            '\'' => (inside, begun) = (!inside, true),
            // A quote within a quoted word.
            '\\' if !inside => word.extend(characters.next()),
            ' ' if !inside => {
                if begun || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        all.push(word);
    }
    all
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
        let command = ["/m/x-1.gguf", "my model's", "", "$HOME", "ü", "a b"];
        assert_eq!(words(&command.map(quoted).join(" ")), command);
        assert_eq!((words(""), words(" a  b ")), (Vec::new(), vec!["a".to_string(), "b".into()]));
    }
}
