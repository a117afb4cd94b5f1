//! Instructions across lanes and registers that have no formula: exchange of lanes, registers by index, matrices.

use super::wave::{Wave, is_vector, write};
use crate::fault::FaultKind;
use crate::isa::inst::Inst;
use crate::isa::op::lanes::LANES;
use crate::isa::op::wmma::{Addend, Modifiers, WmmaRow};
use crate::isa::{Kind, Row};

/// Executes an instruction between lanes, or between registers that M0 numbers.
pub(super) fn execute(wave: &mut Wave, inst: &Inst, row: &Row) -> Result<(), FaultKind> {
    let (m0, dst) = (wave.m0() as usize, usize::from(inst.dst));
    let source = usize::from(inst.src[0] & 255);
    // Registers relative to M0, or to its halves.
    let (from, to) = match row.name {
        "v_movrels_b32" => (source + m0, dst),
        "v_movreld_b32" => (source, dst + m0),
        "v_movrelsd_b32" => (source + m0, dst + m0),
        "v_movrelsd_2_b32" | "v_swaprel_b32" => (source + (m0 & 0x3ff), dst + (m0 >> 16 & 0x3ff)),
        _ => (source, dst),
    };
    let (from, to) = (from & 255, to & 255);
    let exec = wave.exec();
    let old = if is_vector(inst.src[0]) || row.name.starts_with("v_movrels") {
        wave.vgpr[from]
    } else {
        [wave.scalar(inst.src[0], Kind::U32, inst.literal) as u32; LANES]
    };
    match row.name {
        "v_movrels_b32" | "v_movreld_b32" | "v_movrelsd_b32" | "v_movrelsd_2_b32" => {
            write(&mut wave.vgpr[to], &old, exec);
        }
        "v_swaprel_b32" => {
            let other = wave.vgpr[to];
            write(&mut wave.vgpr[to], &old, exec);
            write(&mut wave.vgpr[from], &other, exec);
        }
        // Without a second half there is nothing to exchange.
        "v_permlane64_b32" if wave.lanes() == 32 => {}
        "v_permlane64_b32" => {
            let new = std::array::from_fn(|lane| old[lane ^ 32]);
            write(&mut wave.vgpr[to], &new, exec);
        }
        "v_permlane16_b32" | "v_permlanex16_b32" => {
            permute(wave, inst, &old, row.name == "v_permlanex16_b32")
        }
        name => return Err(FaultKind::Unimplemented(name.to_string())),
    }
    Ok(())
}

/// Makes each lane read a lane of its row of 16, or of the row next to it: 4 bits for each of them in two scalars. The first
/// bit of OP_SEL reads inactive lanes too; the second one gives 0 for them instead of leaving the destination.
fn permute(wave: &mut Wave, inst: &Inst, old: &[u32; LANES], across: bool) {
    let exec = wave.exec();
    let word = |i: usize| wave.scalar(inst.src[i], Kind::U32, inst.literal) & 0xffff_ffff;
    let chosen = word(1) | word(2) << 32;
    let from = |lane: usize| {
        let row = lane & !15 ^ if across { 16 } else { 0 };
        row + (chosen >> (4 * (lane & 15)) & 15) as usize
    };
    let readable = if inst.op_sel & 1 != 0 { u64::MAX } else { exec };
    let is_readable = |lane: usize| readable >> from(lane) & 1 != 0;
    let new = std::array::from_fn(|lane| if is_readable(lane) { old[from(lane)] } else { 0 });
    let found = (0..LANES).fold(0, |mask, lane| mask | u64::from(is_readable(lane)) << lane);
    let written = if inst.op_sel & 2 != 0 { exec } else { exec & found };
    write(&mut wave.vgpr[usize::from(inst.dst & 255)], &new, written);
}

/// Executes a matrix instruction.
#[inline(never)]
pub(super) fn multiply(wave: &mut Wave, inst: &Inst, row: &WmmaRow) -> Result<(), FaultKind> {
    if wave.exec() != wave.all {
        // A lane that is off holds a part of the matrices as well.
        return Err(FaultKind::Unimplemented(format!("{} with inactive lanes", row.name)));
    }
    let registers = |wave: &Wave, first: u16, count: usize| -> Vec<[u32; LANES]> {
        (0..count).map(|n| wave.vgpr[(usize::from(first) + n) & 255]).collect()
    };
    let lanes = wave.lanes();
    let sums = 256 / lanes;
    let [a, b, c] = inst.src;
    let factors = [a, b].map(|first| registers(wave, first, row.factor_registers()));
    let c_registers = registers(wave, c, sums);
    let addend = if is_vector(c) {
        Addend::Registers(&c_registers)
    } else {
        Addend::Constant(wave.scalar(c, row.sum_kind(), 0) as u32)
    };
    let mut d = registers(wave, inst.dst, sums);
    let modifiers =
        Modifiers { low: inst.neg, high: inst.abs, upper: inst.op_sel & 4 != 0, clamp: inst.clamp };
    row.multiply(lanes, [&factors[0], &factors[1]], &addend, &mut d, modifiers);
    for (n, register) in d.iter().enumerate() {
        wave.vgpr[(usize::from(inst.dst) + n) & 255] = *register;
    }
    Ok(())
}
