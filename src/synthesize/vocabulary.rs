//! Vocabulary of a synthetic model, so that it can read and write text.
//!
//! A byte-level BPE without merges: one token for each byte, one that ends a text, and made-up words for the
//! rest. Only the model produces these words; encoding a text never does.

use crate::tokenizer::byte_text;
use ggml_core::Result;
use ggml_core::gguf::{Array, GgufWriter};

/// Minimum size of a vocabulary: the tokens of the bytes and the end of a text.
const LEAST: usize = 257;

/// Values of `tokenizer.ggml.token_type` for ordinary and control tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// Chat template. Only the token that ends a turn is in the vocabulary; the names of the roles are text.
pub(super) const TEMPLATE: &str = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>\
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Adds a vocabulary of a length and a chat template, or neither if the length is too short for the bytes.
pub(super) fn add(w: &mut GgufWriter<'_>, length: usize) -> Result<()> {
    if length < LEAST {
        return Ok(());
    }
    let bytes = (0..=u8::MAX).map(|byte| byte_text(&[byte]));
    let words = (LEAST..length).map(|i| byte_text(format!(" {}", word(i - LEAST)).as_bytes()));
    let texts: Vec<String> = bytes.chain(["<|end|>".to_string()]).chain(words).collect();
    let kinds: Vec<i32> = (0..length).map(|i| if i + 1 == LEAST { CONTROL } else { NORMAL }).collect();
    w.set("tokenizer.ggml.model", "gpt2")?;
    w.set("tokenizer.ggml.pre", "gpt-2")?;
    w.set("tokenizer.ggml.tokens", Array::texts(&texts))?;
    w.set("tokenizer.ggml.token_type", Array::from(&kinds[..]))?;
    w.set("tokenizer.ggml.merges", Array::texts([""; 0]))?;
    w.set("tokenizer.ggml.eos_token_id", LEAST as u32 - 1)?;
    w.set("tokenizer.chat_template", TEMPLATE)?;
    Ok(())
}

/// Returns a pronounceable word, a different one for each index.
fn word(mut i: usize) -> String {
    const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
    const VOWELS: &[u8] = b"aeiou";
    let mut word = String::new();
    loop {
        let (consonant, rest) = (i % CONSONANTS.len(), i / CONSONANTS.len());
        word.push(char::from(CONSONANTS[consonant]));
        word.push(char::from(VOWELS[rest % VOWELS.len()]));
        i = rest / VOWELS.len();
        if i == 0 {
            return word;
        }
        i -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_differ() {
        let words: HashSet<String> = (0..300_000).map(word).collect();
        assert_eq!(words.len(), 300_000);
        assert_eq!((word(0).as_str(), word(69).as_str(), word(70).as_str()), ("ba", "zu", "baba"));
    }
}
