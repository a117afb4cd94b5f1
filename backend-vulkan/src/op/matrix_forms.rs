//! Forms of the kernels of FLASH_ATTN_EXT for many tokens on matrix units: the work of a work-group, and the splits of the
//! positions.

use crate::arch::ArchClass;
use crate::device::profile::Profile;
use crate::route::Route;
use ggml_core::DType;

/// Tokens that a group of subgroups computes together on matrix units.
const MATRIX_TOKENS: u32 = 16;
/// Maximum row length on matrix units.
pub(super) const LONGEST_ROW: u32 = 576;
/// Maximum splits on matrix units, and the minimum positions of a split there.
const MAX_MATRIX_SPLITS: u32 = 8;
const MIN_SPLIT: u32 = 256;

/// Work distribution of the kernel on matrix units, for a row length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixForm {
    /// Positions of a step.
    pub(super) positions: u32,
    /// Subgroups that share rows.
    pub(super) row_subgroups: u32,
    /// Groups of subgroups that share rows, in a work-group; each group has 16 tokens.
    pub(super) groups: u32,
    /// Steps whose keys and values workgroup-shared memory holds.
    pub(super) stages: u32,
    /// Work-groups that a compute unit holds at a time, as registers allow.
    pub(super) resident: u32,
    /// True if scores stay in registers: `flash_attn_fragment`, without shared rows.
    pub(super) in_registers: bool,
}

/// Maximum row length with scores in registers. Longer queries and results leave no room for them.
const LONGEST_IN_REGISTERS: u32 = 128;

impl MatrixForm {
    /// Returns the best form that `fits`. `row`: the longest row of q, k and v.
    pub(super) fn choose(
        profile: &Profile,
        row: u32,
        dtype: DType,
        fits: impl Fn(&MatrixForm) -> bool,
    ) -> Option<MatrixForm> {
        let emulated = profile.caps.emulated_matrices;
        let in_registers = if profile.uses(Route::MatrixRows) { MatrixForm::in_registers(row) } else { &[] };
        let all = in_registers.iter().chain(MatrixForm::all(profile, row, emulated, dtype));
        all.copied().find(fits)
    }

    /// Returns the candidate forms with scores in registers, the best first.
    fn in_registers(row: u32) -> &'static [MatrixForm] {
        const fn form(positions: u32, stages: u32, resident: u32) -> MatrixForm {
            MatrixForm { positions, row_subgroups: 1, groups: 4, stages, resident, in_registers: true }
        }
        // Microseconds of causal prompts of 1,024 tokens with 32 heads on an H200, without a cache, with rows of 128 and four
        // heads of keys behind 16,384 positions, with rows of 64 and eight behind as many, by positions, subgroups, stages:
        //
        // | form | 128 | 128, 16,384 | 64 | 64, 16,384 |
        // | --- | --- | --- | --- | --- |
        // | scores in shared memory | 221 | 2666 | 152 | |
        // | 32, 4, 2 | 150 | 1822 | 115 | 1300 |
        // | 32, 4, 1 | 156 | 2144 | 96 | 1633 |
        // | 32, 8, 2 | 160 | 1946 | 129 | 1281 |
        // | 64, 4, 2 | no room | | 93 | 1056 |
        // | 64, 4, 1 | 178 | 2537 | 113 | 1255 |
        // | 64, 8, 1 | 170 | 2111 | 127 | 1328 |
        //
        // Two work-groups fit: the compiler takes 238 registers for rows of 128. 16 positions, 12 subgroups, 32 tokens for a
        // subgroup (spills) and keys and values loaded in turns are slower. With three splits for each multiprocessor in place of
        // two, 512 tokens of 14 heads of 64 over 16,896 positions take 371 in place of 278.
        const SHORT: &[MatrixForm] = &[form(64, 2, 2), form(32, 2, 2), form(32, 1, 2)];
        const WHOLE: &[MatrixForm] = &[form(32, 2, 2), form(32, 1, 2)];
        match row {
            ..=64 => SHORT,
            65..=LONGEST_IN_REGISTERS => WHOLE,
            _ => &[],
        }
    }

    /// Returns the candidate forms with scores in shared memory, the best first. `row`: the longest row of q, k and v.
    /// Where registers do not hold a whole row, as few subgroups as possible share it, because each of them computes
    /// the scores.
    fn all(profile: &Profile, row: u32, emulated: bool, dtype: DType) -> &'static [MatrixForm] {
        const fn form(positions: u32, row_subgroups: u32, groups: u32) -> MatrixForm {
            MatrixForm { positions, row_subgroups, groups, stages: 1, resident: 2, in_registers: false }
        }
        const SHORT: &[MatrixForm] = &[form(64, 1, 4)];
        const WHOLE: &[MatrixForm] = &[form(32, 1, 4), form(32, 2, 2)];
        // On an H200, 512 tokens of 32 heads of 128 over 4608 positions run at 98.0 Tflop/s with two stages,
        // 95.4 with one. A model of half a billion weights with 14 heads of 64 elements after 4096 other
        // tokens computes 49,600 tokens per second with `SHORT_OF_NVIDIA`, 47,200 with two stages, and 48,700
        // with 64 positions.
        const STAGED: &[MatrixForm] =
            &[MatrixForm { stages: 2, ..form(32, 1, 4) }, form(32, 1, 4), form(32, 2, 2)];
        const SHORT_OF_NVIDIA: &[MatrixForm] = &[MatrixForm { resident: 3, ..form(32, 1, 4) }];
        const HALVES: &[MatrixForm] = &[form(32, 2, 4), form(32, 2, 2)];
        const QUARTERS: &[MatrixForm] = &[form(32, 4, 2), form(32, 4, 1)];
        // On an H200, latents over 4096 positions run at 36.2, 38.8, 40.9 and 40.8 Tflop/s with (32, 4, 1),
        // (16, 4, 1), (16, 4, 2) and (16, 8, 2), without matrix units at 6.1.
        const LONG: &[MatrixForm] = &[form(16, 4, 2), form(16, 4, 1)];
        // With four subgroups per row Mesa's compiler spills 384 registers for Navi 31, with eight none.
        // None of these was measured on an AMD card.
        const LONG_OF_RDNA3: &[MatrixForm] = &[form(16, 8, 2), form(16, 8, 1)];
        let whole = longest_whole_row(profile);
        match row {
            // Emulation executes both stage counts, where `vulkan.matrix-rows` is off.
            _ if row <= whole && emulated => STAGED,
            ..=64 if profile.caps.arch == ArchClass::Nvidia => SHORT_OF_NVIDIA,
            _ if row <= whole && profile.caps.arch == ArchClass::Nvidia => STAGED,
            ..=64 if !dtype.is_quantized() => SHORT,
            _ if row <= whole => WHOLE,
            _ if row <= 256.min(2 * whole) => HALVES,
            _ if row <= 256 => QUARTERS,
            ..=LONGEST_ROW if profile.caps.arch == ArchClass::AmdRdna3 => LONG_OF_RDNA3,
            ..=LONGEST_ROW => LONG,
            _ => &[],
        }
    }

    pub(super) fn subgroups(&self) -> u32 {
        self.row_subgroups * self.groups
    }

    pub(super) fn tokens(&self) -> u32 {
        MATRIX_TOKENS * self.groups
    }

    /// Returns the workgroup-shared memory in bytes, given the lengths of keys and values in units of 16:
    /// steps, scores, factors; the queries if emulated, and weights in place of registers. Values of quantised
    /// types are sums of two.
    pub(super) fn shared_bytes(&self, sixteens: [u32; 2], dtype: DType, emulated: bool) -> u32 {
        let [k_stride, v_stride] = sixteens.map(|n| 2 * n.next_multiple_of(self.row_subgroups) + 1);
        let summands = if dtype.is_quantized() { 2 } else { 1 };
        let (keys, values) = (self.positions * k_stride, summands * self.positions * v_stride);
        if self.in_registers {
            let steps = (self.stages * (keys + values)).max(self.subgroups() * 64);
            let queries = self.tokens() * k_stride;
            let weights = self.subgroups() * self.positions / 16 * 64;
            return 16 * if emulated { steps + queries + weights } else { steps.max(queries) } + 8;
        }
        let (strips, score_row) = (self.subgroups() * 64, self.tokens() * (self.positions / 4 + 1));
        let operands_and_scores = if self.row_subgroups > 1 {
            keys.max(values) + (self.row_subgroups * score_row).max(score_row + strips)
        } else {
            self.stages * (keys.max(strips) + values) + score_row
        };
        let step = operands_and_scores + self.tokens() / 4;
        let queries = self.tokens() * k_stride;
        16 * if emulated { step + queries } else { step.max(queries) } + 4 * (2 + self.stages)
    }
}

/// Returns the number of splits of the positions with which `groups` work-groups fill the device without a
/// second round: on an H200 336 work-groups of 48 steps take longer than 224 of 72 where a compute unit holds
/// two at a time.
pub(super) fn matrix_splits(profile: &Profile, form: &MatrixForm, groups: u64, positions: u32) -> u32 {
    let concurrent = u64::from(form.resident) * profile.units();
    let wanted = (concurrent / groups.max(1)).clamp(1, MAX_MATRIX_SPLITS.into()) as u32;
    wanted.min(positions / MIN_SPLIT).max(1)
}

/// Returns the maximum row length of q, k and v that a subgroup holds whole: queries and results stay in
/// registers. RDNA3's units need each value of an operand twice.
fn longest_whole_row(profile: &Profile) -> u32 {
    match profile.caps.arch {
        ArchClass::AmdRdna3 => 64,
        ArchClass::Nvidia => 256,
        _ => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Caps;

    /// Checks that the positions are split when work-groups are few and positions many.
    #[test]
    fn positions_are_split_where_tokens_are_few() {
        let caps = Caps { compute_units: Some(132), ..Caps::imagined(ArchClass::Nvidia, 16) };
        let profile = Profile::new(caps);
        let form = MatrixForm::all(&profile, 64, false, DType::F16)[0];
        let of = |groups, positions| matrix_splits(&profile, &form, groups, positions);
        assert_eq!([of(256, 4608), of(112, 4608), of(28, 4608), of(1, 1 << 20)], [1, 3, 8, 8]);
        assert_eq!([of(28, 511), of(28, 512), of(28, 1100)], [1, 2, 4]);
    }
}
