//! Instructions of CDNA without a formula: matrix instructions, moves from and to accumulation registers, conversions
//! to one byte.

use super::simd::{Host, Work};
use super::wave::write;
use super::wave::{REGISTERS, Wave, is_vector};
use crate::fault::FaultKind;
use crate::isa::Kind;
use crate::isa::inst::Inst;
use crate::isa::op::fp8::{self, BF8, FP8};
use crate::isa::op::lanes::LANES;
use crate::isa::op::matrix::{Lanes, MOST_RESULTS, MatrixRow, Modifiers};
use crate::isa::operand::VGPR;

/// The operands of a matrix instruction.
struct Product<'a> {
    row: &'a MatrixRow,
    modifiers: Modifiers,
    factors: [&'a [Lanes]; 2],
    index: &'a Lanes,
    sum: &'a mut [Lanes],
}

impl Work for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.row.multiply(self.modifiers, self.factors, self.index, self.sum);
    }
}

/// Executes a matrix instruction: for all lanes, whatever EXEC is.
pub(super) fn matrix(host: Host, wave: &mut Wave, inst: &Inst, row: &MatrixRow) {
    let first = |operand: u16| usize::from(operand - VGPR);
    // The decoder refuses registers beyond the last one.
    let registers = |operand: u16, count: usize| &wave.vgpr[first(operand)..first(operand) + count];
    let mut sum = [[0; LANES]; MOST_RESULTS];
    let sum = &mut sum[..row.registers()];
    if row.sparse {
        sum.copy_from_slice(registers(inst.dst + VGPR, row.registers()));
    } else if is_vector(inst.src[2]) {
        sum.copy_from_slice(registers(inst.src[2], row.registers()));
    } else {
        let kind = match () {
            () if row.is_wide() => Kind::F64,
            () if row.is_integer() => Kind::I32,
            () => Kind::F32,
        };
        let constant = wave.scalar(inst.src[2], kind, 0);
        for (n, register) in sum.iter_mut().enumerate() {
            let upper = row.is_wide() && n % 2 == 1;
            *register = [if upper { (constant >> 32) as u32 } else { constant as u32 }; LANES];
        }
    }
    let index = if row.sparse { wave.vgpr[first(inst.src[2]) % REGISTERS] } else { [0; LANES] };
    let negates = row.is_wide() && row.negates;
    let modifiers = Modifiers { cbsz: inst.abs, abid: inst.op_sel, blgp: inst.neg, negates };
    let factors = [registers(inst.src[0], row.a_registers()), registers(inst.src[1], row.b_registers())];
    host.run(Product { row, modifiers, factors, index: &index, sum });
    let to = usize::from(inst.dst);
    wave.vgpr[to..to + sum.len()].copy_from_slice(sum);
}

/// Executes the other instructions without a formula.
#[inline(never)]
pub(super) fn separate(wave: &mut Wave, inst: &Inst) -> Result<(), FaultKind> {
    let exec = wave.exec();
    let source = |i: usize| match inst.src[i] {
        operand if is_vector(operand) => wave.vgpr[usize::from(operand - VGPR) % REGISTERS],
        operand => [wave.scalar(operand, Kind::U32, inst.literal) as u32; LANES],
    };
    let to = usize::from(inst.dst) % REGISTERS;
    let format = match inst.name {
        "v_accvgpr_read_b32" | "v_accvgpr_write_b32" | "v_accvgpr_mov_b32" => {
            let values = source(0);
            write(&mut wave.vgpr[to], &values, exec);
            return Ok(());
        }
        "v_cvt_sr_fp8_f32" => FP8,
        "v_cvt_sr_bf8_f32" => BF8,
        name => return Err(FaultKind::Unimplemented(name.to_string())),
    };
    let (values, random) = (source(0), source(1));
    let (clear, flip) = (u32::from(inst.abs & 1) << 31, u32::from(inst.neg & 1) << 31);
    let saturate = wave.mode >> 23 & 1 != 0;
    let shift = 8 * u32::from(inst.op_sel >> 2 & 3);
    let old = wave.vgpr[to];
    let results = std::array::from_fn(|lane| {
        let value = f32::from_bits(values[lane] & !clear ^ flip);
        let byte = fp8::stochastic(value, random[lane], format, saturate);
        old[lane] & !(255 << shift) | u32::from(byte) << shift
    });
    write(&mut wave.vgpr[to], &results, exec);
    Ok(())
}
