//! Prints instructions as LLVM's disassembler does.

use super::cdna::text as cdna;
use super::gfx11::text as gfx11;
use super::inst::{Body, Dpp, Form, Inst, Pair, ScalarTable, Sdwa, Segment, Table};
use super::names::{half, hardware_register, index_mode, list, message, name, number, range, signed_hex};
use super::names::{source, suffix, swizzle, vgprs};
use super::op::matrix::MatrixRow;
use super::op::memory::{MemoryRow, Op, ScalarOp, ScalarRow as SmemRow};
use super::op::wmma::{Sum, WmmaRow};
use super::target::Target;
use super::{Generation, Kind, Row, ScalarRow, flag, operand};
use std::fmt::Write;

/// Returns the text of an instruction.
pub(crate) fn print(inst: &Inst) -> String {
    let mut p = Printer { text: String::new(), operands: 0 };
    match &inst.body {
        &Body::Scalar(table, row) => p.scalar(inst, table, row),
        Body::ScalarMemory(row) => p.scalar_memory(inst, row),
        &Body::Vector(table, row) => p.vector(inst, table, row),
        Body::Matrix(row) => p.matrix(inst, row),
        &Body::Memory(segment, row) => p.memory(inst, segment, row),
        Body::Lds(row) => p.lds(inst, row),
        Body::Wmma(row) => p.wmma(inst, row),
        Body::Pair(pair) => return pair_text(pair),
    }
    p.text
}

/// Returns the text of two operations at once.
fn pair_text(pair: &Pair) -> String {
    let [first, second] = pair.halves.each_ref().map(print);
    format!("{first} :: {second}")
}

struct Printer {
    text: String,
    operands: usize,
}

impl Printer {
    /// Appends an operand, after a comma unless it is the first.
    fn push_operand(&mut self, operand: impl AsRef<str>) {
        self.text += if self.operands == 0 { " " } else { ", " };
        self.text += operand.as_ref();
        self.operands += 1;
    }

    /// Appends a word after the operands.
    fn word(&mut self, condition: bool, word: &str) {
        if condition {
            self.text += " ";
            self.text += word;
        }
    }

    fn scalar(&mut self, inst: &Inst, table: ScalarTable, row: &ScalarRow) {
        self.text += inst.name;
        match table {
            ScalarTable::Sopp => return self.program(inst, row),
            ScalarTable::Sopk => return self.constant(inst, row),
            _ => {}
        }
        if row.dst != Kind::None {
            self.push_operand(name(inst.isa, inst.dst, row.dst, 0));
        }
        let literal = format!("{:#x}", inst.literal);
        for (i, &kind) in row.src.iter().enumerate().take_while(|(_, k)| **k != Kind::None) {
            if row.name == "s_fmamk_f32" && i == 1 {
                self.push_operand(&literal);
            }
            if row.name == "s_set_gpr_idx_on" && i == 1 {
                self.push_operand(index_mode(inst.offset));
            } else {
                // LLVM prints constants of these halves as those of integers.
                let shown = match table {
                    ScalarTable::Sop1 if kind == Kind::F16 && inst.src[i] == operand::LITERAL => Kind::U32,
                    ScalarTable::Sopc if kind == Kind::F16 => Kind::U16,
                    _ => kind,
                };
                self.push_operand(name(inst.isa, inst.src[i], shown, inst.literal));
            }
        }
        match row.name {
            "s_fmaak_f32" => self.push_operand(&literal),
            "s_sendmsg_rtn_b32" | "s_sendmsg_rtn_b64" => {
                self.push_operand(message(inst.isa, inst.offset as u32));
            }
            _ => {}
        }
    }

    fn constant(&mut self, inst: &Inst, row: &ScalarRow) {
        let field = inst.offset as u32 & 0xffff;
        match row.name {
            "s_getreg_b32" => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
                self.push_operand(hardware_register(inst.isa, field));
            }
            "s_setreg_b32" => {
                self.push_operand(hardware_register(inst.isa, field));
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
            }
            "s_setreg_imm32_b32" => {
                self.push_operand(hardware_register(inst.isa, field));
                self.push_operand(number(inst.literal, Kind::U32));
            }
            "s_call_b64" => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U64, 0));
                self.push_operand(field.to_string());
            }
            "s_subvector_loop_begin" | "s_subvector_loop_end" => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
                self.push_operand(field.to_string());
            }
            "s_version" => self.push_operand(format!("{field:#x}")),
            _ => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
                self.push_operand(format!("{field:#x}"));
            }
        }
    }

    fn program(&mut self, inst: &Inst, row: &ScalarRow) {
        let field = inst.offset as u32 & 0xffff;
        match row.name {
            "s_barrier" | "s_wakeup" | "s_icache_inv" | "s_ttracedata" | "s_set_gpr_idx_off"
            | "s_endpgm_saved" | "s_wait_idle" | "s_code_end" => {}
            "s_endpgm" if field == 0 => {}
            "s_waitcnt" => self.wait(inst, field),
            "s_sendmsg" | "s_sendmsghalt" => self.push_operand(message(inst.isa, field)),
            "s_delay_alu" => self.push_operand(gfx11::delay(field)),
            "s_waitcnt_depctr" => self.push_operand(gfx11::dependencies(field)),
            "s_set_inst_prefetch_distance"
            | "s_clause"
            | "s_wait_event"
            | "s_round_mode"
            | "s_ttracedata_imm"
            | "s_singleuse_vdst" => self.push_operand(format!("{field:#x}")),
            "s_set_gpr_idx_mode" => self.push_operand(index_mode(inst.offset)),
            // LLVM prints numbers as those of constants: some in decimal.
            _ if field <= 64 || row.name == "s_endpgm" || row.name.starts_with("s_cbranch") => {
                self.push_operand(field.to_string());
            }
            "s_branch" => self.push_operand(field.to_string()),
            _ => self.push_operand(format!("{field:#x}")),
        }
    }

    fn wait(&mut self, inst: &Inst, field: u32) {
        let counts = match inst.isa.target.generation() {
            Generation::Gfx9 => [
                ("vmcnt", field & 15 | field >> 10 & 48, 63),
                ("expcnt", field >> 4 & 7, 7),
                ("lgkmcnt", field >> 8 & 15, 15),
            ],
            Generation::Gfx11 => {
                [("vmcnt", field >> 10 & 63, 63), ("expcnt", field & 7, 7), ("lgkmcnt", field >> 4 & 63, 63)]
            }
        };
        let all = counts.iter().all(|&(_, n, most)| n == most);
        for (name, n, most) in counts {
            if all || n != most {
                let _ = write!(self.text, " {name}({n})");
            }
        }
    }

    fn scalar_memory(&mut self, inst: &Inst, row: &SmemRow) {
        self.text += inst.name;
        if matches!(row.op, ScalarOp::Nothing) {
            return;
        }
        self.push_operand(range(inst.isa, inst.dst, row.registers.into()));
        if row.op == ScalarOp::Clock {
            return;
        }
        self.push_operand(range(inst.isa, inst.src[0], if row.buffer { 4 } else { 2 }));
        match (inst.flags.soffset, inst.flags.imm) {
            (true, true) => {
                self.push_operand(name(inst.isa, inst.src[1], Kind::U32, 0));
                let _ = write!(self.text, " offset:{}", signed_hex(inst.offset));
            }
            (true, false) => self.push_operand(name(inst.isa, inst.src[1], Kind::U32, 0)),
            _ => self.push_operand(signed_hex(inst.offset)),
        }
        self.word(inst.flags.glc, "glc");
        self.word(inst.flags.dlc, "dlc");
    }

    fn vector(&mut self, inst: &Inst, table: Table, row: &Row) {
        self.text += inst.name;
        if row.name.starts_with("v_accvgpr") {
            self.push_operand(vgprs(inst.dst, 1));
            return self.push_operand(name(inst.isa, inst.src[0], Kind::U32, inst.literal));
        }
        self.text += suffix(inst, table, row);
        match row.dst {
            Kind::None => {}
            // It writes EXEC alone.
            Kind::Mask if row.is(flag::EXEC) && inst.dst == operand::EXEC => {}
            Kind::Mask => self.push_operand(name(inst.isa, inst.dst, Kind::Mask, 0)),
            _ if row.is(flag::SPECIAL) && row.name.starts_with("v_read") => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
            }
            _ if row.name == "v_mov_b16" => self.push_operand(half(inst.dst, inst.op_sel & 8 != 0)),
            kind => self.push_operand(vgprs(inst.dst, kind.registers(inst.isa))),
        }
        if row.carry_out {
            self.push_operand(name(inst.isa, inst.sdst, Kind::Mask, 0));
        }
        for (i, &kind) in row.src.iter().enumerate() {
            // The accumulator is the destination, which is already printed.
            let hidden = row.is(flag::ACC) || kind == Kind::Mask && inst.name.starts_with("v_dual_");
            if matches!(kind, Kind::None | Kind::Vcc) || hidden && i == 2 {
                break;
            }
            let is_literal = row.is([0, flag::LITERAL1, flag::LITERAL2][i.min(2)]);
            self.push_operand(match is_literal {
                true => format!("{:#x}", inst.literal),
                false => source(inst, i, kind),
            });
        }
        match inst.form {
            Form::Sdwa(sdwa) => self.sdwa(inst, table, row, sdwa),
            Form::Dpp(dpp) => self.dpp(inst, dpp),
            Form::LongDpp(dpp) => {
                self.long(inst, table, row);
                self.dpp(inst, dpp);
            }
            Form::Long => self.long(inst, table, row),
            Form::Short => {}
        }
    }

    fn wmma(&mut self, inst: &Inst, row: &WmmaRow) {
        self.text += inst.name;
        let (factors, sums) = (row.factor_registers(), 256 / usize::from(inst.isa.lanes));
        self.push_operand(vgprs(inst.dst, sums));
        self.push_operand(vgprs(inst.src[0] - operand::VGPR, factors));
        self.push_operand(vgprs(inst.src[1] - operand::VGPR, factors));
        self.push_operand(match inst.src[2] {
            operand::VGPR.. => vgprs(inst.src[2] - operand::VGPR, sums),
            // LLVM prints the constant 1 / 2π as that of a double.
            248 => name(inst.isa, 248, Kind::F64, 0),
            constant => name(inst.isa, constant, row.sum_kind(), 0),
        });
        // Only sums of 16 bits have halves.
        let usual = Inst { op_sel: 0, op_sel_hi: 7, ..inst.clone() };
        self.packed(if matches!(row.sum, Sum::F32 | Sum::I32) { &usual } else { inst }, 3, 7);
        self.word(inst.clamp, "clamp");
    }

    /// Appends selected halves and signs; `usual` are the upper halves that need no mention.
    fn packed(&mut self, inst: &Inst, count: usize, usual: u8) {
        let full = (1u8 << count) - 1;
        self.word(inst.op_sel & full != 0, &format!("op_sel:{}", list(inst.op_sel, count)));
        self.word(inst.op_sel_hi & full != usual, &format!("op_sel_hi:{}", list(inst.op_sel_hi, count)));
        if usual != 0 {
            self.word(inst.neg & full != 0, &format!("neg_lo:{}", list(inst.neg, count)));
            self.word(inst.abs & full != 0, &format!("neg_hi:{}", list(inst.abs, count)));
        }
    }

    /// Appends the modifiers of 64-bit encodings.
    fn long(&mut self, inst: &Inst, table: Table, row: &Row) {
        let count = row.src.iter().filter(|k| !matches!(k, Kind::None | Kind::Vcc)).count();
        let full = (1u8 << count) - 1;
        if table == Table::Vop3p {
            self.packed(inst, count, if row.src[0] == Kind::Mix { 0 } else { full });
        } else if row.is(flag::SPECIAL) && row.name.starts_with("v_cvt_sr_") {
            self.word(inst.op_sel != 0, &format!("op_sel:{}", list(inst.op_sel, 4)));
        } else if row.name == "v_mov_b16" {
            // Names of registers say it.
        } else if row.is(flag::SPECIAL) {
            // Two bits that say what becomes of inactive lanes.
            self.word(inst.op_sel & 3 != 0, &format!("op_sel:{}", list(inst.op_sel, 2)));
        } else if inst.op_sel != 0 {
            let of_destination = inst.op_sel >> 3 << count;
            self.word(true, &format!("op_sel:{}", list(inst.op_sel & full | of_destination, count + 1)));
        }
        self.word(inst.clamp, "clamp");
        self.word(inst.omod != 0, ["", "mul:2", "mul:4", "div:2"][usize::from(inst.omod & 3)]);
    }

    fn sdwa(&mut self, inst: &Inst, table: Table, row: &Row, sdwa: Sdwa) {
        const PARTS: [&str; 8] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"];
        self.word(inst.clamp, "clamp");
        self.word(inst.omod != 0, ["", "mul:2", "mul:4", "div:2"][usize::from(inst.omod & 3)]);
        // These write whole registers.
        let whole = row.name.ends_with("_fp8") || row.name.ends_with("_bf8");
        if table != Table::Vopc && !whole {
            let unused = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"][usize::from(sdwa.unused & 3)];
            let _ = write!(self.text, " dst_sel:{} dst_unused:{unused}", PARTS[usize::from(sdwa.dst & 7)]);
        }
        let _ = write!(self.text, " src0_sel:{}", PARTS[usize::from(sdwa.src[0] & 7)]);
        if row.src[1] != Kind::None {
            let _ = write!(self.text, " src1_sel:{}", PARTS[usize::from(sdwa.src[1] & 7)]);
        }
    }

    fn dpp(&mut self, inst: &Inst, dpp: Dpp) {
        let n = dpp.control & 15;
        if let Some(eight) = dpp.eight {
            let lanes: Vec<String> = (0..8).map(|i| (eight >> (3 * i) & 7).to_string()).collect();
            let _ = write!(self.text, " dpp8:[{}]", lanes.join(","));
            return self.word(dpp.inactive, "fi:1");
        }
        let control = match dpp.control {
            0..=0xff => {
                let lane = |i: u16| dpp.control >> (2 * i) & 3;
                format!("quad_perm:[{},{},{},{}]", lane(0), lane(1), lane(2), lane(3))
            }
            0x101..=0x10f => format!("row_shl:{n}"),
            0x111..=0x11f => format!("row_shr:{n}"),
            0x121..=0x12f => format!("row_ror:{n}"),
            0x130 => "wave_shl:1".into(),
            0x134 => "wave_rol:1".into(),
            0x138 => "wave_shr:1".into(),
            0x13c => "wave_ror:1".into(),
            0x140 => "row_mirror".into(),
            0x141 => "row_half_mirror".into(),
            0x142 => "row_bcast:15".into(),
            0x143 => "row_bcast:31".into(),
            0x150..=0x15f if inst.isa.target.generation() == Generation::Gfx9 => format!("row_newbcast:{n}"),
            0x150..=0x15f => format!("row_share:{n}"),
            0x160..=0x16f => format!("row_xmask:{n}"),
            other => format!("/* unknown {other:#x} */"),
        };
        let _ = write!(self.text, " {control} row_mask:{:#x} bank_mask:{:#x}", dpp.rows, dpp.banks);
        self.word(dpp.bound, "bound_ctrl:1");
        self.word(dpp.inactive, "fi:1");
    }

    fn memory(&mut self, inst: &Inst, segment: Segment, row: &MemoryRow) {
        let _ = write!(self.text, "{}{}", segment.prefix(), inst.name);
        let [address, data, scalar] = inst.src;
        let returns =
            matches!(row.op, Op::Load { .. }) || inst.flags.glc && matches!(row.op, Op::Atomic { .. });
        let stored = vgprs(data, row.op.stored_registers());
        if row.op == Op::Nothing {
            // Those of gfx942 name the caches.
            return if matches!(row.name, "wbl2" | "inv") {
                self.caches(inst)
            };
        }
        if segment == Segment::Buffer {
            return self.buffer(inst, row);
        }
        if matches!(row.op, Op::LoadByLane | Op::StoreByLane) {
            self.push_operand(vgprs(if row.op == Op::LoadByLane { inst.dst } else { data }, 1));
        } else if returns {
            self.push_operand(vgprs(inst.dst, row.op.loaded_registers()));
        }
        let has_base = scalar != operand::OFF;
        match segment {
            Segment::Scratch if !inst.flags.vaddr => self.push_operand("off"),
            Segment::Scratch => self.push_operand(vgprs(address, 1)),
            // The lane's number is added to the base.
            _ if matches!(row.op, Op::LoadByLane | Op::StoreByLane) => {}
            Segment::Global if has_base => self.push_operand(vgprs(address, 1)),
            _ => self.push_operand(vgprs(address, 2)),
        }
        if row.op.stored_registers() > 0 {
            self.push_operand(stored);
        }
        match segment {
            Segment::Flat => {}
            _ if !has_base => self.push_operand("off"),
            Segment::Scratch => self.push_operand(name(inst.isa, scalar, Kind::U32, 0)),
            _ => self.push_operand(name(inst.isa, scalar, Kind::U64, 0)),
        }
        self.word(inst.offset != 0, &format!("offset:{}", inst.offset));
        self.caches(inst);
        self.word(inst.flags.lds, "lds");
    }

    /// Appends the bits that choose caches.
    fn caches(&mut self, inst: &Inst) {
        let gfx942 = inst.isa.target == Target::Gfx942;
        let names = if gfx942 { ["sc0", "nt", "sc1"] } else { ["glc", "slc", "scc"] };
        for (set, name) in [inst.flags.glc, inst.flags.slc, inst.flags.scc].into_iter().zip(names) {
            self.word(set, name);
        }
        self.word(inst.flags.dlc, "dlc");
    }

    fn matrix(&mut self, inst: &Inst, row: &MatrixRow) {
        self.text += row.name;
        cdna::operands(inst, row).iter().for_each(|operand| self.push_operand(operand));
        cdna::modifiers(inst, row).iter().for_each(|modifier| self.word(true, modifier));
    }

    fn buffer(&mut self, inst: &Inst, row: &MemoryRow) {
        let loaded = if let Op::Load { .. } = row.op { row.op.loaded_registers() } else { 0 };
        if !inst.flags.lds {
            // With TFE, an additional register after the data receives the residency status.
            let registers = row.op.stored_registers().max(loaded) + usize::from(inst.flags.tfe);
            self.push_operand(vgprs(inst.src[1], registers));
        }
        match (inst.flags.idxen, inst.flags.offen) {
            (true, true) => self.push_operand(vgprs(inst.src[0], 2)),
            (false, false) => self.push_operand("off"),
            _ => self.push_operand(vgprs(inst.src[0], 1)),
        }
        self.push_operand(range(inst.isa, inst.src[2], 4));
        self.push_operand(name(inst.isa, inst.sdst, Kind::U32, 0));
        self.word(inst.flags.idxen, "idxen");
        self.word(inst.flags.offen, "offen");
        self.word(inst.offset != 0, &format!("offset:{}", inst.offset));
        self.caches(inst);
        self.word(inst.flags.tfe, "tfe");
        self.word(inst.flags.lds, "lds");
    }

    fn lds(&mut self, inst: &Inst, row: &MemoryRow) {
        self.text += inst.name;
        let [address, first, second] = inst.src;
        let two_offsets = matches!(row.op, Op::Load2 { .. } | Op::Store2 { .. } | Op::Exchange2 { .. });
        let (result, data) = row.op.lds_registers();
        if result > 0 {
            self.push_operand(vgprs(inst.dst, result));
        }
        if !matches!(row.op, Op::Nothing | Op::Append | Op::Consume | Op::LoadByLane | Op::StoreByLane) {
            self.push_operand(vgprs(address, 1));
        }
        for (&register, &count) in [first, second].iter().zip(&data) {
            if count > 0 {
                self.push_operand(vgprs(register, count));
            }
        }
        if two_offsets {
            let (a, b) = (inst.offset & 255, inst.offset >> 8 & 255);
            self.word(a != 0, &format!("offset0:{a}"));
            self.word(b != 0, &format!("offset1:{b}"));
        } else if row.op == Op::Swizzle {
            self.word(inst.offset != 0, &format!("offset:{}", swizzle(inst.offset as u32)));
        } else {
            self.word(inst.offset != 0, &format!("offset:{}", inst.offset));
        }
        self.word(inst.flags.gds, "gds");
    }
}
