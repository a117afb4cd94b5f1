//! Operands: the special values of each type in all pairs, then random bits.

use crate::support::Random;
use crate::vectors::harness::{LaneIn, WaveIn};

/// Type of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    F32,
    F64,
    /// In the low half; the high half is random, because it must be ignored.
    F16,
    /// Two halves.
    F16x2,
    I32,
    I64,
    I16,
    /// Two 16-bit values, or four and eight smaller ones.
    I16x2,
    /// Shift counts, mostly below 64.
    Shift,
    /// Floats with magnitudes near one: products and sums round but do not overflow.
    Near,
    /// Exponents for ldexp.
    Exponent,
    /// Floats as angles in turns.
    Angle,
}

const F32: &[u32] = &[
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x4000_0000,
    0xc000_0000,
    0x4040_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0xffc1_2345,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x3faa_aaab,
    0x4b00_0001,
    0x4f00_0000,
    0xcf00_0000,
    0x4f7f_ffff,
    0x3eff_ffff,
    0x3fc0_0000,
    0xbfc0_0000,
    0x4020_0000,
    0x437f_0000,
];
const F64: &[u64] = &[
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x3fe0_0000_0000_0000,
    0x4000_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    1,
    0x800f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x3ff5_5555_5555_5555,
    0x41df_ffff_ffc0_0000,
    0xc1e0_0000_0000_0000,
    0x41ef_ffff_ffe0_0000,
    0x4330_0000_0000_0001,
    0x3ff8_0000_0000_0000,
    0xc004_0000_0000_0000,
    0x3690_0000_0000_0000,
    0x47ef_ffff_f000_0000,
];
const F16: &[u16] = &[
    0, 0x8000, 0x3c00, 0xbc00, 0x3800, 0x4000, 0x4200, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01,
    0xfe12, 1, 0x8001, 0x03ff, 0x0400, 0x8400, 0x3d55, 0x6400, 0x7800, 0x3e00, 0x4100, 0xbe00, 0x3555,
];
const I32: &[u32] = &[
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7f_ffff,
    0x80_0000,
    0xff_ffff,
    0x100_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xffff_fffe,
    0xaaaa_aaaa,
    0x5555_5555,
    0x1234_5678,
];
const I64: &[u64] = &[
    0,
    1,
    2,
    63,
    64,
    0xffff_ffff,
    1 << 32,
    (1 << 32) + 1,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
    u64::MAX - 1,
    0x5555_5555_5555_5555,
    0x0123_4567_89ab_cdef,
];
const I16: &[u16] =
    &[0, 1, 2, 3, 15, 16, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0x8001, 0xffff, 0xfffe, 0x5555, 0x1234];

impl Kind {
    pub(crate) fn special(self) -> Vec<u64> {
        match self {
            Kind::F32 => F32.iter().map(|&x| x.into()).collect(),
            Kind::F64 => F64.to_vec(),
            Kind::F16 | Kind::F16x2 => F16.iter().map(|&x| x.into()).collect(),
            Kind::I32 => I32.iter().map(|&x| x.into()).collect(),
            Kind::I64 => I64.to_vec(),
            Kind::I16 | Kind::I16x2 => I16.iter().map(|&x| x.into()).collect(),
            Kind::Shift => vec![0, 1, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 0xffff_ffff],
            Kind::Near => vec![0x3f80_0000, 0xbf80_0000, 0x4000_0000, 0x3f80_0001, 0x3f7f_ffff, 0xbf00_0000],
            Kind::Exponent => {
                vec![0, 1, 0xffff_ffff, 10, 127, 128, 0xffff_ff80, 24, 0xffff_ffe8, 2000, 0xffff_f830, 15]
            }
            Kind::Angle => {
                vec![0, 0x8000_0000, 0x3e80_0000, 0x3f00_0000, 0x3f80_0000, 0xbf40_0000, 0x437f_8000]
            }
        }
    }

    fn random(self, random: &mut Random) -> u64 {
        let bits = random.u64();
        let sign = bits & 0x8000_0000;
        match self {
            Kind::Shift => bits % 66,
            Kind::Near => (0x3e00_0000 + (bits & 0x03ff_ffff)) | sign,
            Kind::Exponent => (i64::from(random.below(300)) - 150) as u32 as u64,
            Kind::Angle => u64::from(((random.below(512_000_000) as f32) / 1e6 - 256.0).to_bits()),
            // Half of them have exponents of small integers, so that magnitudes are comparable.
            Kind::F32 if random.below(2) == 0 => {
                u64::from((0x3e00_0000 + (bits as u32 & 0x03ff_ffff)) | sign as u32)
            }
            Kind::F64 if random.below(2) == 0 => {
                (0x3fd0_0000_0000_0000 + (bits & 0x007f_ffff_ffff_ffff)) | (bits & 1 << 63)
            }
            _ => bits,
        }
    }

    /// Returns one operand from a special value, or a random one.
    fn make(self, special: Option<u64>, random: &mut Random) -> u64 {
        let noise = random.u64();
        match (self, special) {
            (Kind::F16 | Kind::I16, Some(value)) => value | noise << 16,
            (Kind::F16x2 | Kind::I16x2, Some(value)) => {
                let list = self.special();
                let other = list[random.below(list.len() as u32) as usize];
                let (low, high) = if noise & 1 == 0 { (value, other) } else { (other, value) };
                low | high << 16 | noise << 32
            }
            (Kind::F64 | Kind::I64, Some(value)) => value,
            (_, Some(value)) => value | noise << 32,
            (_, None) => {
                let value = self.random(random);
                if matches!(self, Kind::F64 | Kind::I64) { value } else { value & 0xffff_ffff | noise << 32 }
            }
        }
    }
}

/// Operands of a case.
pub(crate) struct Operands {
    kinds: Vec<Kind>,
    waves: Option<usize>,
}

impl Operands {
    pub(crate) fn new(kinds: &[Kind], waves: Option<usize>) -> Self {
        Self { kinds: kinds.to_vec(), waves }
    }

    /// Returns the number of lanes: enough for every pair of special values, or for many triples, and for
    /// random ones.
    fn lanes(&self) -> usize {
        if let Some(waves) = self.waves {
            return waves * 64;
        }
        let special = |i: usize| self.kinds.get(i).map_or(1, |k| k.special().len());
        let pairs = special(0) * special(1);
        let lanes = if self.kinds.len() > 2 { pairs * 2 + 256 } else { pairs + 192 };
        lanes.next_multiple_of(64)
    }

    /// Fills wavefronts and their lanes with operands.
    pub(crate) fn fill(&self, random: &mut Random) -> (Vec<WaveIn>, Vec<LaneIn>) {
        let count = self.lanes();
        let lists: Vec<Vec<u64>> = self.kinds.iter().map(|k| k.special()).collect();
        let pairs = lists.iter().take(2).map(Vec::len).product::<usize>();
        let mut lanes = vec![LaneIn::default(); count];
        for (i, lane) in lanes.iter_mut().enumerate() {
            let value = |k: usize, random: &mut Random| {
                let Some(kind) = self.kinds.get(k) else { return random.u64() };
                let list = &lists[k];
                let special = match k {
                    0 if i < pairs => Some(list[i % list.len()]),
                    1 if i < pairs => Some(list[i / lists[0].len()]),
                    2 if i % 4 != 3 => Some(list[random.below(list.len() as u32) as usize]),
                    _ if i >= pairs && i % 3 == 0 => Some(list[random.below(list.len() as u32) as usize]),
                    _ => None,
                };
                kind.make(special, random)
            };
            lane.a = value(0, random);
            lane.b = value(1, random);
            lane.c = [value(2, random), random.u64()];
            lane.old = [(); 4].map(|()| random.u32());
            lane.spare = [(); 4].map(|()| random.u32());
        }
        let waves = (0..count / 64).map(|i| Self::wave(i, random)).collect();
        (waves, lanes)
    }

    fn wave(number: usize, random: &mut Random) -> WaveIn {
        let exec = match number % 4 {
            1 => random.u64(),
            3 => random.u64() & random.u64() & random.u64(),
            _ => u64::MAX,
        };
        WaveIn {
            vcc: random.u64(),
            exec,
            sa: random.u64(),
            sb: random.u64(),
            sd: random.u64(),
            scc: random.below(2),
            m0: random.u32(),
            sc: random.u64(),
            spare: random.u64(),
        }
    }
}
