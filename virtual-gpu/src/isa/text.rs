//! Prints instructions as LLVM's disassembler does.

use super::inst::{Body, Dpp, Form, Inst, ScalarTable, Sdwa, Segment, Table};
use super::op::matrix::MatrixRow;
use super::op::memory::{MemoryRow, Op, ScalarOp, ScalarRow as SmemRow};
use super::target::Target;
use super::{Isa, Kind, Row, ScalarRow, flag, operand};
use std::fmt::Write;

/// Returns the text of an instruction.
pub(crate) fn print(inst: &Inst) -> String {
    let mut p = Printer { text: String::new(), operands: 0 };
    match inst.body {
        Body::Scalar(table, row) => p.scalar(inst, table, row),
        Body::ScalarMemory(row) => p.scalar_memory(inst, row),
        Body::Vector(table, row) => p.vector(inst, table, row),
        Body::Matrix(row) => p.matrix(inst, row),
        Body::Memory(segment, row) => p.memory(inst, segment, row),
        Body::Lds(row) => p.lds(inst, row),
    }
    p.text
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
        for (i, &kind) in row.src.iter().enumerate().take_while(|(_, k)| **k != Kind::None) {
            if row.name == "s_set_gpr_idx_on" && i == 1 {
                self.push_operand(index_mode(inst.offset));
            } else {
                self.push_operand(name(inst.isa, inst.src[i], kind, inst.literal));
            }
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
            | "s_endpgm_saved" => {}
            "s_endpgm" if field == 0 => {}
            "s_waitcnt" => self.wait(field),
            "s_sendmsg" => self.push_operand(format!("sendmsg({})", message(field))),
            "s_set_gpr_idx_mode" => self.push_operand(index_mode(inst.offset)),
            "s_endpgm" => self.push_operand(field.to_string()),
            name if name.starts_with("s_branch") || name.starts_with("s_cbranch") => {
                self.push_operand(field.to_string());
            }
            _ => self.push_operand(number(field, Kind::U64)),
        }
    }

    fn wait(&mut self, field: u32) {
        let counts = [
            ("vmcnt", field & 15 | field >> 10 & 48, 63),
            ("expcnt", field >> 4 & 7, 7),
            ("lgkmcnt", field >> 8 & 15, 15),
        ];
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
            Kind::Mask => self.push_operand(name(inst.isa, inst.dst, Kind::Mask, 0)),
            _ if row.is(flag::SPECIAL) && row.name.contains("lane") && row.name != "v_writelane_b32" => {
                self.push_operand(name(inst.isa, inst.dst, Kind::U32, 0));
            }
            kind => self.push_operand(vgprs(inst.dst, kind.registers(inst.isa))),
        }
        if row.carry_out {
            self.push_operand(name(inst.isa, inst.sdst, Kind::Mask, 0));
        }
        for (i, &kind) in row.src.iter().enumerate() {
            // The accumulator is the destination, which is already printed.
            if matches!(kind, Kind::None | Kind::Vcc) || row.is(flag::ACC) && i == 2 {
                break;
            }
            self.push_operand(source(inst, i, kind));
        }
        match inst.form {
            Form::Sdwa(sdwa) => self.sdwa(inst, table, row, sdwa),
            Form::Dpp(dpp) => self.dpp(dpp),
            Form::Long => self.long(inst, table, row),
            Form::Short => {}
        }
    }

    /// Appends the modifiers of 64-bit encodings.
    fn long(&mut self, inst: &Inst, table: Table, row: &Row) {
        let count = row.src.iter().filter(|k| !matches!(k, Kind::None | Kind::Vcc)).count();
        let list = |bits: u8, n: usize| {
            let all: Vec<String> = (0..n).map(|i| (bits >> i & 1).to_string()).collect();
            format!("[{}]", all.join(","))
        };
        let full = (1u8 << count) - 1;
        if table == Table::Vop3p {
            let mix = row.src[0] == Kind::Mix;
            self.word(inst.op_sel & full != 0, &format!("op_sel:{}", list(inst.op_sel, count)));
            let usual = if mix { 0 } else { full };
            self.word(inst.op_sel_hi & full != usual, &format!("op_sel_hi:{}", list(inst.op_sel_hi, count)));
            if !mix {
                self.word(inst.neg & full != 0, &format!("neg_lo:{}", list(inst.neg, count)));
                self.word(inst.abs & full != 0, &format!("neg_hi:{}", list(inst.abs, count)));
            }
        } else if inst.op_sel != 0 && row.name.starts_with("v_cvt_sr_") {
            self.word(true, &format!("op_sel:{}", list(inst.op_sel, 4)));
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

    fn dpp(&mut self, dpp: Dpp) {
        let n = dpp.control & 15;
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
            0x150..=0x15f => format!("row_newbcast:{n}"),
            other => format!("/* unknown {other:#x} */"),
        };
        let _ = write!(self.text, " {control} row_mask:{:#x} bank_mask:{:#x}", dpp.rows, dpp.banks);
        self.word(dpp.bound, "bound_ctrl:1");
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
        if returns {
            self.push_operand(vgprs(inst.dst, row.op.loaded_registers()));
        }
        let has_base = scalar != operand::OFF;
        match segment {
            Segment::Scratch if inst.flags.vaddr => self.push_operand(vgprs(address, 1)),
            Segment::Scratch => self.push_operand("off"),
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
        let names = match inst.isa.target {
            Target::Gfx942 => ["sc0", "nt", "sc1"],
            _ => ["glc", "slc", "scc"],
        };
        for (set, name) in [inst.flags.glc, inst.flags.slc, inst.flags.scc].into_iter().zip(names) {
            self.word(set, name);
        }
    }

    fn matrix(&mut self, inst: &Inst, row: &MatrixRow) {
        self.text += row.name;
        self.push_operand(vgprs(inst.dst, row.registers()));
        let counts = [row.a_registers(), row.b_registers(), if row.sparse { 1 } else { row.registers() }];
        for (source, count) in inst.src.into_iter().zip(counts) {
            self.push_operand(match source.checked_sub(operand::VGPR) {
                Some(register) => vgprs(register, count),
                None if row.is_wide() => name(inst.isa, source, Kind::F64, 0),
                None => name(inst.isa, source, Kind::F32, 0),
            });
        }
        self.word(inst.abs != 0, &format!("cbsz:{}", inst.abs));
        self.word(inst.op_sel != 0, &format!("abid:{}", inst.op_sel));
        let negated: Vec<String> = (0..3).map(|i| (inst.neg >> i & 1).to_string()).collect();
        if row.negates {
            self.word(inst.neg != 0, &format!("neg:[{}]", negated.join(",")));
        } else {
            self.word(inst.neg != 0, &format!("blgp:{}", inst.neg));
        }
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

/// Returns the encoding suffix ("_e32" etc.) of names with several encodings.
fn suffix(inst: &Inst, table: Table, row: &Row) -> &'static str {
    match inst.form {
        Form::Sdwa(_) => "_sdwa",
        Form::Dpp(_) => "_dpp",
        _ if matches!(table, Table::Vop3 | Table::Vop3p) => "",
        _ if row.is(flag::LITERAL1 | flag::LITERAL2) => "",
        _ if matches!(row.name, "v_readfirstlane_b32" | "v_swap_b32" | "v_nop" | "v_clrexcp") => "",
        Form::Long => "_e64",
        Form::Short => "_e32",
    }
}

/// Returns a source of a vector instruction with its modifiers.
fn source(inst: &Inst, i: usize, kind: Kind) -> String {
    let text = name(inst.isa, inst.src[i], kind, inst.literal);
    if matches!(inst.form, Form::Sdwa(sdwa) if sdwa.extend.get(i) == Some(&true)) {
        return format!("sext({text})");
    }
    // Packed instructions print the signs of both halves at their end.
    let packed = matches!(inst.body, Body::Vector(Table::Vop3p, row) if row.src[0] != Kind::Mix);
    if (kind.is_packed() || packed) && !matches!(inst.form, Form::Dpp(_)) {
        return text;
    }
    let (negative, absolute) = (inst.neg >> i & 1 != 0, inst.abs >> i & 1 != 0);
    let constant = matches!(inst.src[i], operand::ZERO..=208 | 240..=248 | operand::LITERAL);
    match (negative, absolute) {
        (false, false) => text,
        (true, false) if constant => format!("neg({text})"),
        (true, false) => format!("-{text}"),
        (false, true) => format!("|{text}|"),
        (true, true) => format!("-|{text}|"),
    }
}

/// Returns the name of a range of vector or accumulation registers.
fn vgprs(first: u16, count: usize) -> String {
    let (kind, n) = if first < 256 { ('v', first) } else { ('a', first - 256) };
    match count {
        0 | 1 => format!("{kind}{n}"),
        _ => format!("{kind}[{n}:{}]", usize::from(n) + count - 1),
    }
}

/// Returns the name of a range of scalar registers.
fn range(isa: Isa, first: u16, count: usize) -> String {
    match (first, count) {
        (_, 0 | 1) => name(isa, first, Kind::U32, 0),
        (_, 2) => name(isa, first, Kind::U64, 0),
        (0..=101, _) => format!("s[{first}:{}]", usize::from(first) + count - 1),
        (108..=123, _) => format!("ttmp[{}:{}]", first - 108, usize::from(first) + count - 109),
        // Compilers emit no groups of four of these.
        _ => format!("/* {count} from */ {}", name(isa, first, Kind::U64, 0)),
    }
}

/// Returns an operand's text: registers or a constant.
fn name(isa: Isa, operand: u16, kind: Kind, literal: u32) -> String {
    let pair = kind.registers(isa) == 2;
    if operand >= operand::VGPR {
        return vgprs(operand - operand::VGPR, kind.registers(isa));
    }
    let named = |name: &str| {
        let half = if operand % 2 == 0 { "_lo" } else { "_hi" };
        if pair { name.to_string() } else { format!("{name}{half}") }
    };
    match operand {
        0..=101 if pair => format!("s[{operand}:{}]", operand + 1),
        0..=101 => format!("s{operand}"),
        102 | 103 => named("flat_scratch"),
        104 | 105 => named("xnack_mask"),
        106 | 107 => named("vcc"),
        108..=123 if pair => format!("ttmp[{}:{}]", operand - 108, operand - 107),
        108..=123 => format!("ttmp{}", operand - 108),
        124 => "m0".into(),
        126 | 127 => named("exec"),
        128..=192 => (operand - 128).to_string(),
        193..=208 => (192 - i32::from(operand)).to_string(),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        239 => "src_pops_exiting_wave_id".into(),
        240..=247 => {
            ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"][usize::from(operand - 240)].into()
        }
        248 if matches!(kind, Kind::F64 | Kind::U64 | Kind::I64) => "0.15915494309189532".into(),
        248 => "0.15915494".into(),
        251 => "src_vccz".into(),
        252 => "src_execz".into(),
        253 => "src_scc".into(),
        254 => "src_lds_direct".into(),
        operand::LITERAL => number(literal, kind),
        _ => format!("/* unknown {operand} */"),
    }
}

/// Returns a literal's text. Small integers and some powers of two are printed as values although encoded in
/// full.
fn number(literal: u32, kind: Kind) -> String {
    let float = [(0.5f32, "0.5"), (1.0, "1.0"), (2.0, "2.0"), (4.0, "4.0")];
    let found = float.iter().find(|(value, _)| value.to_bits() == literal & 0x7fff_ffff);
    match (literal as i32, kind) {
        // Not extended: it has 64 bits.
        (n @ 0..=64, Kind::U64 | Kind::I64) => n.to_string(),
        (_, Kind::U64 | Kind::I64) => format!("{literal:#x}"),
        (n @ -16..=64, _) => n.to_string(),
        (_, Kind::F64 | Kind::F16 | Kind::U16 | Kind::I16) => format!("{literal:#x}"),
        _ => match found {
            Some((_, text)) if literal >> 31 != 0 => format!("-{text}"),
            Some((_, text)) => text.to_string(),
            None => format!("{literal:#x}"),
        },
    }
}

fn signed_hex(x: i32) -> String {
    if x < 0 { format!("-{:#x}", x.unsigned_abs()) } else { format!("{x:#x}") }
}

fn hardware_register(isa: Isa, field: u32) -> String {
    const NAMES: [&str; 8] = [
        "",
        "HW_REG_MODE",
        "HW_REG_STATUS",
        "HW_REG_TRAPSTS",
        "HW_REG_HW_ID",
        "HW_REG_GPR_ALLOC",
        "HW_REG_LDS_ALLOC",
        "HW_REG_IB_STS",
    ];
    const GFX942: [&str; 5] = [
        "HW_REG_XCC_ID",
        "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
    ];
    let (id, offset, width) = (field & 63, field >> 6 & 31, (field >> 11 & 31) + 1);
    let name = match id {
        1..=7 => NAMES[id as usize].to_string(),
        15 => "HW_REG_SH_MEM_BASES".into(),
        16 => "HW_REG_TBA_LO".into(),
        17 => "HW_REG_TBA_HI".into(),
        18 => "HW_REG_TMA_LO".into(),
        19 => "HW_REG_TMA_HI".into(),
        20..=24 if isa.target == Target::Gfx942 => GFX942[id as usize - 20].into(),
        _ => id.to_string(),
    };
    if offset == 0 && width == 32 {
        format!("hwreg({name})")
    } else {
        format!("hwreg({name}, {offset}, {width})")
    }
}

fn message(field: u32) -> String {
    match field {
        1 => "MSG_INTERRUPT".into(),
        _ => format!("{}, {}, {}", field & 15, field >> 4 & 7, field >> 8 & 3),
    }
}

fn index_mode(bits: i32) -> String {
    let names = ["SRC0", "SRC1", "SRC2", "DST"];
    let set: Vec<&str> = (0..4).filter(|i| bits >> i & 1 != 0).map(|i| names[i]).collect();
    format!("gpr_idx({})", set.join(","))
}

fn swizzle(offset: u32) -> String {
    if offset & 0xff00 == 0x8000 {
        let lane = |i: u32| offset >> (2 * i) & 3;
        return format!("swizzle(QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3));
    }
    if offset & 0x8000 != 0 {
        return offset.to_string();
    }
    let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
    let group = 32 - and;
    if and == 31 && or == 0 && xor.is_power_of_two() {
        format!("swizzle(SWAP,{xor})")
    } else if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
        format!("swizzle(REVERSE,{})", xor + 1)
    } else if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
        format!("swizzle(BROADCAST,{group},{or})")
    } else {
        let bit = |i: u32| match (and >> i & 1, or >> i & 1, xor >> i & 1) {
            (0, 0, 0) | (0, 1, 1) | (1, 1, 1) => '0',
            (0, ..) | (1, 1, 0) => '1',
            (_, _, 0) => 'p',
            _ => 'i',
        };
        let mask: String = (0..5).rev().map(bit).collect();
        format!("swizzle(BITMASK_PERM,\"{mask}\")")
    }
}
