//! Contents and orders under a seed.

use crate::options::{Options, Random};

/// Words of the longest contents: 256 vector registers of 64 lanes, or 64 KiB of LDS.
const LONGEST: usize = 256 * 64;
/// Different places at which contents begin.
const PLACES: usize = 4096;

/// Seed and random words: contents are copies of parts of them, which costs no more than zeros.
pub(crate) struct Noise {
    pub(crate) random: Random,
    pub(crate) seed: u64,
    words: Box<[u32]>,
    /// The same as bytes.
    bytes: Box<[u8]>,
}

impl std::fmt::Debug for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Noise")
            .field("random", &self.random)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Noise {
    pub(crate) fn new(options: &Options) -> Noise {
        let Options { random, seed, .. } = *options;
        let words = |word: usize| mix(seed ^ 0x6e6f_6973_6500_0000, word as u64) as u32;
        let count = if random.registers || random.memory { LONGEST + PLACES } else { 0 };
        let words: Box<[u32]> = (0..count).map(words).collect();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Noise { random, seed, words, bytes }
    }

    /// Returns the seed if something is random.
    pub(crate) fn shown(&self) -> Option<u64> {
        self.random.any().then_some(self.seed)
    }

    /// Returns `count` random words for something with a name, at most [`LONGEST`]. `None` if contents of registers are
    /// not random.
    pub(crate) fn words(&self, name: u64, count: usize) -> Option<&[u32]> {
        if !self.random.registers {
            return None;
        }
        let from = mix(self.seed, name) as usize % PLACES;
        self.words.get(from..from + count)
    }

    /// Fills memory with a name, if its contents are random.
    pub(crate) fn fill(&self, name: u64, to: &mut [u8]) {
        let from = 4 * (mix(self.seed, name) as usize % PLACES);
        let Some(bytes) = self.bytes.get(from..).filter(|_| self.random.memory) else { return };
        for part in to.chunks_mut(bytes.len()) {
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }

    /// Returns the order of the wavefronts of a work-group between two barriers.
    pub(crate) fn waves(&self, group: u64, epoch: u64, count: usize) -> [u8; 32] {
        let mut order: [u8; 32] = std::array::from_fn(|i| i as u8);
        if self.random.waves {
            let mut state = mix(self.seed, group << 20 ^ epoch);
            for last in (1..count.min(order.len())).rev() {
                state = mix(state, last as u64);
                order.swap(last, state as usize % (last + 1));
            }
        }
        order
    }

    /// Returns the order of `total` work-groups.
    pub(crate) fn groups(&self, total: usize) -> Order {
        if !self.random.groups || total < 2 {
            return Order { total, step: 1, start: 0 };
        }
        let state = mix(self.seed, total as u64);
        let mut step = (state as usize % total) | 1;
        while gcd(step, total) != 1 {
            step += 2;
        }
        Order { total, step: step % total, start: (state >> 32) as usize % total }
    }
}

/// An order of numbers: each is a constant step after the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    total: usize,
    step: usize,
    start: usize,
}

impl Order {
    /// Returns the `n`th number.
    pub(crate) fn at(&self, n: usize) -> usize {
        ((n as u128 * self.step as u128 + self.start as u128) % self.total.max(1) as u128) as usize
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns a random word for a number under a seed (S. Vigna's SplitMix64).
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut z =
        seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(random: Random, seed: u64) -> Noise {
        Noise::new(&Options { random, seed, ..Options::default() })
    }

    #[test]
    fn orders_are_permutations_that_a_seed_chooses() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let noise = noise(Random::ALL, seed);
            for total in [1, 2, 3, 8, 9, 30, 1000, 65536] {
                let mut all: Vec<usize> = (0..total).map(|n| noise.groups(total).at(n)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..total).collect::<Vec<_>>());
            }
            let waves = noise.waves(7, 3, 16);
            let mut sorted = waves;
            sorted.sort_unstable();
            assert_eq!(sorted, std::array::from_fn(|i| i as u8));
            assert!(waves[16..].is_sorted(), "there are no more wavefronts");
            seen.insert(waves);
        }
        assert_eq!(seen.len(), 20);
        let fixed = noise(Random::NONE, 5);
        assert!(fixed.waves(7, 3, 16).is_sorted());
        assert_eq!((fixed.groups(9).at(4), fixed.shown(), fixed.words(3, 4)), (4, None, None));
    }

    #[test]
    fn contents_depend_on_the_seed() {
        let [a, b] = [1, 2].map(|seed| noise(Random::ALL, seed));
        assert_ne!(a.words(1, 64), b.words(1, 64));
        assert_eq!(a.words(9, LONGEST).map(<[u32]>::len), Some(LONGEST));
        let [mut x, mut y] = [[0; 100_003]; 2];
        a.fill(0x1000, &mut x);
        b.fill(0x1000, &mut y);
        assert_ne!(x, y);
        let zeros = x.iter().filter(|&&byte| byte == 0).count();
        assert!(zeros < 1000, "{zeros}");
    }
}
