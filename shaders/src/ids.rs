//! SPIR-V whose ids are told by their distance from the last result, which packs to half the size: an operand is mostly
//! a result of shortly before, and such distances repeat where ids do not.
//!
//! Of instructions only that is known: the first word is 65536 times the length and something, the third one is mostly
//! the result. What is taken for an id and is none is a small number that changes places with others, and comes back
//! all the same.

// The build script writes with one half of this, the library reads with the other.
#![allow(dead_code)]

/// Ids as far as this from the last result are told by the distance.
const NEAR: u32 = 256;

/// No id is as great as this; what is begins an instruction, or is a number.
const END: u32 = 1 << 16;

/// The words from here to [`END`] stand for ids near the last result.
const DISTANCES: u32 = END - 2 * NEAR;

/// What is known of the words before.
#[derive(Default)]
pub(crate) struct Ids {
    result: u32,
    length: u32,
    position: u32,
}

impl Ids {
    /// The word that stands for the next word.
    pub(crate) fn relative(&mut self, word: u32) -> u32 {
        let first = self.first_near();
        self.pass(word);
        match word {
            _ if word < first || word >= END => word,
            _ if word < first + 2 * NEAR => DISTANCES + (word - first),
            // Those beyond move up to where the near ones were.
            _ => word - 2 * NEAR,
        }
    }

    /// The next word, from the one that stands for it.
    pub(crate) fn absolute(&mut self, word: u32) -> u32 {
        let first = self.first_near();
        let absolute = match word {
            _ if word < first || word >= END => word,
            _ if word >= DISTANCES => first + (word - DISTANCES),
            _ => word + 2 * NEAR,
        };
        self.pass(absolute);
        absolute
    }

    fn first_near(&self) -> u32 {
        self.result.saturating_sub(NEAR).min(DISTANCES)
    }

    fn pass(&mut self, word: u32) {
        if word >= END {
            (self.length, self.position) = (word / END, 0);
            return;
        }
        self.position += 1;
        // Shorter instructions have no result, or no operands that are ids.
        if self.position == 2 && self.length >= 4 {
            self.result = word;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results at the ends of the numbers and between; small words that are ids, that are none, and great words.
    #[test]
    fn every_word_comes_back() {
        for result in [0, 1, NEAR, 1000, DISTANCES - 1, DISTANCES + NEAR, END - 1] {
            let load = [4 << 16 | 61, 6, result];
            let after = (0..END).step_by(7).chain(END - 3..END + 3).chain([u32::MAX]);
            let (mut seen, mut told) = (Ids::default(), Ids::default());
            for word in after.flat_map(|word| load.into_iter().chain([word])) {
                let stand_in = seen.relative(word);
                assert_eq!(told.absolute(stand_in), word, "after {result}");
            }
        }
    }

    #[test]
    fn distances_repeat() {
        let code = |result: u32| {
            let mut ids = Ids::default();
            [4 << 16 | 61, 6, result, 5 << 16 | 128, 6, result + 1, result, 9].map(|word| ids.relative(word))
        };
        assert_eq!(code(1000)[3..], code(1010)[3..]);
        assert_eq!((code(1000)[5], code(1000)[7]), (DISTANCES + NEAR + 1, 9));
    }
}
