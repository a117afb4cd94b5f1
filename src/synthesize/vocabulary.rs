//! The vocabulary of a synthetic model, so that text goes in and comes out.
//!
//! A byte-level BPE without merges: one token for each byte, one that ends a text, and made-up words for the rest, which
//! only the model ever chooses.

use crate::tokenizer::byte_text;
use ggml_core::Result;
use ggml_core::gguf::{Array, GgufWriter};

/// Tokens that a vocabulary needs at the least: those of the bytes and the end of a text.
const LEAST: usize = 257;

/// `tokenizer.ggml.token_type` of ordinary and of control tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The chat template. Only the token that ends a turn is one of the vocabulary; the names of the roles are text.
pub(super) const TEMPLATE: &str = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>\
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Adds a vocabulary of a length, and a chat template; none if it is too short for the bytes.
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

/// A word that can be spoken, another one for each number.
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
