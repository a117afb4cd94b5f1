//! Names of operands in the texts of instructions.

use super::gfx11::text as gfx11;
use super::inst::{Body, Form, Inst, Table};
use super::target::Target;
use super::{Generation, Isa, Kind, Row, flag, operand};

/// Returns the name of a range of vector or accumulation registers.
pub(super) fn vgprs(first: u16, count: usize) -> String {
    let (kind, n) = if first < 256 { ('v', first) } else { ('a', first - 256) };
    match count {
        0 | 1 => format!("{kind}{n}"),
        _ => format!("{kind}[{n}:{}]", usize::from(n) + count - 1),
    }
}

/// Returns the name of a range of scalar registers.
pub(super) fn range(isa: Isa, first: u16, count: usize) -> String {
    match (first, count) {
        (_, 0 | 1) => name(isa, first, Kind::U32, 0),
        (_, 2) => name(isa, first, Kind::U64, 0),
        (0..=105, _) => format!("s[{first}:{}]", usize::from(first) + count - 1),
        (108..=123, _) => format!("ttmp[{}:{}]", first - 108, usize::from(first) + count - 109),
        // Compilers emit no groups of four of these.
        _ => format!("/* {count} from */ {}", name(isa, first, Kind::U64, 0)),
    }
}

/// Returns an operand's text: registers or a constant.
pub(super) fn name(isa: Isa, operand: u16, kind: Kind, literal: u32) -> String {
    let pair = kind.registers(isa) == 2;
    if operand >= operand::VGPR {
        return vgprs(operand - operand::VGPR, kind.registers(isa));
    }
    let named = |name: &str| {
        let half = if operand % 2 == 0 { "_lo" } else { "_hi" };
        if pair { name.to_string() } else { format!("{name}{half}") }
    };
    let gfx11 = isa.target.generation() == Generation::Gfx11;
    match operand {
        0..=105 if gfx11 && pair => format!("s[{operand}:{}]", operand + 1),
        0..=105 if gfx11 => format!("s{operand}"),
        0..=101 if pair => format!("s[{operand}:{}]", operand + 1),
        0..=101 => format!("s{operand}"),
        102 | 103 => named("flat_scratch"),
        104 | 105 => named("xnack_mask"),
        106 | 107 => named("vcc"),
        108..=123 if pair => format!("ttmp[{}:{}]", operand - 108, operand - 107),
        108..=123 => format!("ttmp{}", operand - 108),
        operand::M0 => "m0".into(),
        operand::NULL if gfx11 => "null".into(),
        126 | 127 => named("exec"),
        128..=192 => (operand - 128).to_string(),
        193..=208 => (192 - i32::from(operand)).to_string(),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        239 => "src_pops_exiting_wave_id".into(),
        // Those of 16-bit integers are the bits of halves.
        240..=248 if matches!(kind, Kind::U16 | Kind::I16) => {
            format!("{:#x}", operand::constant(operand, Kind::F16, 0).unwrap_or(0))
        }
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

/// Returns a literal's text. Small integers and the floats that are constants too are printed as values although encoded
/// in full.
pub(super) fn number(literal: u32, kind: Kind) -> String {
    let (word, half) = (literal as i32, literal as u16);
    let (value, float) = match kind {
        Kind::F64 => ((literal == 0).then_some(0), float64(literal)),
        Kind::U64 | Kind::I64 | Kind::Mask => ((literal <= 64).then_some(word), None),
        Kind::F16 => (Some(i32::from(half as i16)), float16(half.into())),
        Kind::PkF16 => (Some(word), float16(literal)),
        _ => (Some(word), float32(literal)),
    };
    match (value, float) {
        (Some(n @ -16..=64), _) => n.to_string(),
        (_, Some(text)) => text.to_string(),
        _ if matches!(kind, Kind::F16 | Kind::U16 | Kind::I16) => format!("{half:#x}"),
        _ => format!("{literal:#x}"),
    }
}

/// Texts of the floats that are constants.
const FLOATS: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];

fn float32(bits: u32) -> Option<&'static str> {
    let all = [0.5f32, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, f32::from_bits(0x3e22_f983)];
    all.iter().position(|x| x.to_bits() == bits).map(|i| FLOATS[i])
}

fn float16(bits: u32) -> Option<&'static str> {
    let all = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
    all.iter().position(|&x| x == bits).map(|i| FLOATS[i])
}

/// Returns the text of a double with these upper bits.
fn float64(bits: u32) -> Option<&'static str> {
    let all = [0.5f64, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    all.iter().position(|x| x.to_bits() == u64::from(bits) << 32).map(|i| FLOATS[i])
}

pub(super) fn signed_hex(x: i32) -> String {
    if x < 0 { format!("-{:#x}", x.unsigned_abs()) } else { format!("{x:#x}") }
}

pub(super) fn hardware_register(isa: Isa, field: u32) -> String {
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
        _ if isa.target.generation() == Generation::Gfx11 => {
            gfx11::hardware_register(id).map_or_else(|| id.to_string(), str::to_string)
        }
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

pub(super) fn message(isa: Isa, field: u32) -> String {
    match field {
        _ if isa.target.generation() == Generation::Gfx11 => gfx11::message(field),
        1 => "sendmsg(MSG_INTERRUPT)".into(),
        _ => format!("sendmsg({}, {}, {})", field & 15, field >> 4 & 7, field >> 8 & 3),
    }
}

pub(super) fn index_mode(bits: i32) -> String {
    let names = ["SRC0", "SRC1", "SRC2", "DST"];
    let set: Vec<&str> = (0..4).filter(|i| bits >> i & 1 != 0).map(|i| names[i]).collect();
    format!("gpr_idx({})", set.join(","))
}

pub(super) fn swizzle(offset: u32) -> String {
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

/// Returns the encoding suffix ("_e32" etc.) of names with several encodings.
pub(super) fn suffix(inst: &Inst, table: Table, row: &Row) -> &'static str {
    let gfx9 = inst.isa.target.generation() == Generation::Gfx9;
    match inst.form {
        Form::Sdwa(_) => "_sdwa",
        Form::Dpp(_) if table == Table::Vopc && !gfx9 => "",
        Form::Dpp(_) => "_dpp",
        Form::LongDpp(_) => "_e64_dpp",
        _ if matches!(table, Table::Vop3 | Table::Vop3p) => "",
        _ if row.is(flag::LITERAL1 | flag::LITERAL2) || inst.name.starts_with("v_dual_") => "",
        _ if SHORT_NAMES.contains(&row.name) => "",
        // On CDNA they have two encodings.
        _ if !gfx9 && matches!(row.name, "v_dot2c_f32_f16" | "v_pk_fmac_f16") => "",
        Form::Long => "_e64",
        Form::Short => "_e32",
    }
}

/// Operations with one encoding although their format has two.
const SHORT_NAMES: [&str; 7] = [
    "v_readfirstlane_b32",
    "v_swap_b32",
    "v_swaprel_b32",
    "v_permlane64_b32",
    "v_nop",
    "v_pipeflush",
    "v_clrexcp",
];

/// Returns a list of bits.
pub(super) fn list(bits: u8, count: usize) -> String {
    let all: Vec<String> = (0..count).map(|i| (bits >> i & 1).to_string()).collect();
    format!("[{}]", all.join(","))
}

/// Returns the name of half a vector register.
pub(super) fn half(register: u16, upper: bool) -> String {
    format!("{}.{}", vgprs(register & 255, 1), if upper { "h" } else { "l" })
}

/// Returns a source of a vector instruction with its modifiers.
pub(super) fn source(inst: &Inst, i: usize, kind: Kind) -> String {
    let gfx9 = inst.isa.target.generation() == Generation::Gfx9;
    // LLVM's operands of these are floats, with signs.
    let long = matches!(inst.form, Form::Long | Form::LongDpp(_)) && !gfx9;
    let is_exponent = inst.name == "v_ldexp_f16" && long;
    let kind = if is_exponent { Kind::F16 } else { kind };
    let text = name(inst.isa, inst.src[i], kind, inst.literal);
    if matches!(inst.form, Form::Sdwa(sdwa) if sdwa.extend.get(i) == Some(&true)) {
        return format!("sext({text})");
    }
    if inst.name == "v_mov_b16" && inst.src[i] >= operand::VGPR {
        return half(inst.src[i], inst.op_sel >> i & 1 != 0);
    }
    // Packed instructions print the signs of both halves at their end.
    let packed = matches!(inst.body, Body::Vector(Table::Vop3p, _)) && kind != Kind::Mix;
    let single = matches!(inst.body, Body::Vector(Table::Vop3, _));
    let has_signs = inst.name.starts_with("v_cndmask") || inst.name == "v_dot2_bf16_bf16";
    let integer = !kind.is_float() && !has_signs;
    if (kind.is_packed() && !single || packed) && !matches!(inst.form, Form::Dpp(_)) || integer && !gfx9 {
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
