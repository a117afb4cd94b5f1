//! Instructions of gfx90a and gfx942 beyond GFX9: two F32 at once, accumulation registers, doubles, 8-bit floats, atomics.

use crate::support::{CDNA, Random};
use crate::vectors::harness::{Case, Dst, In, LaneIn, Out, WaveIn, check_on, object};
use crate::vectors::numbers::{f, h, half_fma, to_half};
use crate::vectors::operands::Kind;
use virtual_gpu::Target;

/// Puts a lane's F32 next to another's, so that both words of an operand are floats.
fn pairs(_: &mut WaveIn, lanes: &mut [LaneIn], _: &mut Random) {
    let low: Vec<[u64; 3]> = lanes.iter().map(|l| [l.a, l.b, l.c[0]].map(|x| x & 0xffff_ffff)).collect();
    for (k, lane) in lanes.iter_mut().enumerate() {
        let other = low[(5 * k + 7) % low.len()];
        lane.a = low[k][0] | other[0] << 32;
        lane.b = low[k][1] | other[1] << 32;
        lane.c[0] = low[k][2] | other[2] << 32;
    }
}

/// The words and signs that modifiers choose for the low and the high result.
#[derive(Clone, Copy)]
struct Choice {
    text: &'static str,
    /// For each source the word of the low result, and that of the high one.
    words: [[usize; 2]; 3],
    /// For each source whether the low and the high value are negated.
    negated: [[bool; 2]; 3],
}

const PLAIN: Choice = Choice { text: "", words: [[0, 1]; 3], negated: [[false; 2]; 3] };

fn choices(sources: usize) -> Vec<Choice> {
    let two = sources == 2;
    vec![
        PLAIN,
        Choice {
            text: if two { " op_sel:[1,0] op_sel_hi:[0,0]" } else { " op_sel:[1,0,1] op_sel_hi:[0,0,1]" },
            words: [[1, 0], [0, 0], [1, 1]],
            ..PLAIN
        },
        Choice {
            text: if two { " neg_lo:[1,0] neg_hi:[0,1]" } else { " neg_lo:[1,0,1] neg_hi:[0,1,1]" },
            negated: [[true, false], [false, true], [true, true]],
            ..PLAIN
        },
    ]
}

/// Returns a source's values for the low and the high result.
fn chosen(bits: u64, n: usize, choice: Choice) -> [f32; 2] {
    std::array::from_fn(|high| {
        let value = f((bits >> (32 * choice.words[n][high])) as u32);
        if choice.negated[n][high] { -value } else { value }
    })
}

fn packed() -> Vec<Case> {
    let mut cases = Vec::new();
    let kinds = [Kind::F32; 3];
    for choice in choices(3) {
        let text = format!("v_pk_fma_f32 {{D}}, {{A}}, {{B}}, {{C}}{}", choice.text);
        let formula = move |i: &In<'_>| {
            let [a, b, c] = [(i.a(), 0), (i.b(), 1), (i.c(), 2)].map(|(x, n)| chosen(x, n, choice));
            Dst::Floats([0, 1].map(|k| a[k].mul_add(b[k], c[k]))).into()
        };
        cases.push(Case::new(text, &kinds, formula).adjusted(pairs));
    }
    type Two = fn(f32, f32) -> f32;
    let operations: [(&str, Two); 2] = [("v_pk_add_f32", |a, b| a + b), ("v_pk_mul_f32", |a, b| a * b)];
    for (name, operation) in operations {
        for choice in choices(2) {
            let text = format!("{name} {{D}}, {{A}}, {{B}}{}", choice.text);
            let formula = move |i: &In<'_>| {
                let [a, b] = [(i.a(), 0), (i.b(), 1)].map(|(x, n)| chosen(x, n, choice));
                Dst::Floats([0, 1].map(|k| operation(a[k], b[k]))).into()
            };
            cases.push(Case::new(text, &kinds[..2], formula).adjusted(pairs));
        }
        // Compilers use constants for both halves, and pairs of scalar registers.
        let constant = move |i: &In<'_>| {
            let a = chosen(i.a(), 0, PLAIN);
            Dst::Floats(a.map(|a| operation(a, 2.0))).into()
        };
        let text = format!("{name} {{D}}, {{A}}, 2.0 op_sel_hi:[1,0]");
        cases.push(Case::new(text, &kinds[..1], constant).adjusted(pairs));
        let scalar = move |i: &In<'_>| {
            let (a, s) = (chosen(i.a(), 0, PLAIN), chosen(i.wave.sa, 0, PLAIN));
            Dst::Floats([0, 1].map(|k| operation(s[k], a[k]))).into()
        };
        cases.push(Case::new(format!("{name} {{D}}, {{SA}}, {{A}}"), &kinds[..1], scalar).adjusted(pairs));
    }
    // Only the selection of low words matters.
    for (text, words) in
        [("", [0, 0]), (" op_sel:[0,1]", [0, 1]), (" op_sel:[1,0]", [1, 0]), (" op_sel:[1,1]", [1, 1])]
    {
        let text = format!("v_pk_mov_b32 {{D}}, {{A}}, {{B}}{text}");
        cases.push(Case::new(text, &[Kind::I64; 2], move |i| {
            let word = |bits: u64, n: u32| u64::from((bits >> (32 * n)) as u32);
            (word(i.a(), words[0]) | word(i.b(), words[1]) << 32).into()
        }));
    }
    cases
}

fn accumulators() -> Vec<Case> {
    // Other registers must not change: a5 is set for all lanes, a4 for the active ones.
    let around = "s_mov_b64 exec, -1\nv_accvgpr_write_b32 a4, 7\nv_accvgpr_write_b32 a5, 9\n\
                  v_accvgpr_write_b32 a255, 11\ns_mov_b64 exec, s[18:19]";
    let both = |i: &In<'_>| Dst::B64(u64::from(i.a32()) | 9 << 32).into();
    let case = |text: &str, formula: fn(&In<'_>) -> Out| {
        Case::new(text, &[Kind::I32; 2], formula).around(around, "").modes(|k| k.vgprs = 512)
    };
    vec![
        case("v_accvgpr_write_b32 a4, {a}\nv_accvgpr_read_b32 {d}, a4\nv_accvgpr_read_b32 v25, a5", both),
        case("v_accvgpr_mov_b32 a6, a255\nv_accvgpr_read_b32 {d}, a6", |_| 11u32.into()),
        case("v_accvgpr_write_b32 a4, 1.0\nv_accvgpr_read_b32 {d}, a4", |_| 1f32.into()),
        case("v_accvgpr_write_b32 a4, {sa}\nv_accvgpr_read_b32 {d}, a4", |i| (i.wave.sa as u32).into()),
        // Inactive lanes keep their values.
        case(
            "v_accvgpr_write_b32 a4, {a}\ns_mov_b64 exec, -1\nv_accvgpr_read_b32 {d}, a4\ns_mov_b64 exec, s[18:19]",
            |i| {
                let mut out = Out::from(if i.active(i.lane) { i.a32() } else { 7 });
                out.always = true;
                out
            },
        ),
        // Loads and stores of memory and LDS.
        case(
            "global_load_dwordx2 a[4:5], v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dwordx2 v1, a[4:5], s[4:5] offset:16\n\
             s_waitcnt vmcnt(0)\nglobal_load_dwordx2 {D}, v1, s[4:5] offset:16\ns_waitcnt vmcnt(0)",
            |i| i.a().into(),
        ),
        case(
            "v_lshlrev_b32_e32 v40, 3, v0\nv_accvgpr_write_b32 a4, {a}\nv_accvgpr_write_b32 a5, {b}\n\
             ds_write_b64 v40, a[4:5]\ns_waitcnt lgkmcnt(0)\nds_read_b32 a7, v40 offset:4\ns_waitcnt lgkmcnt(0)\n\
             v_accvgpr_read_b32 {d}, a7",
            |i| i.b32().into(),
        )
        .modes(|k| k.lds = 512),
    ]
}

fn doubles_and_dots(target: Target) -> Vec<Case> {
    let flushes = target == Target::Gfx90a;
    let three = |name: &str, kinds: &[Kind], formula: fn(&In<'_>, u32) -> Out| {
        Case::new(format!("{name} {{d}}, {{a}}, {{b}}"), kinds, move |i| formula(i, i.old()))
    };
    let signed = |x: u32, k: u32, bits: u32| i64::from((x << (32 - bits - k * bits)) as i32 >> (32 - bits));
    let sum = move |i: &In<'_>, bits: u32| {
        let products = (0..32 / bits).map(|k| signed(i.a32(), k, bits) * signed(i.b32(), k, bits));
        ((products.sum::<i64>() + i64::from(i.old() as i32)) as u32).into()
    };
    let integer = |name: &str, bits: u32| {
        let text = format!("{name}_e32 {{d}}, {{a}}, {{b}}");
        Case::new(text, &[Kind::I16x2; 2], move |i| sum(i, bits))
    };
    // Denormals are zeros on gfx90a. The order of the sums is not documented.
    let dot = move |i: &In<'_>| {
        let half = |x: u32, k: u32| {
            let bits = x >> (16 * k) & 0xffff;
            h(if flushes && bits & 0x7c00 == 0 { 0 } else { bits })
        };
        let c = f(i.old());
        let c = f64::from(if flushes && c.is_subnormal() { 0.0 } else { c });
        let [low, high] = [0, 1].map(|k| half(i.a32(), k) * half(i.b32(), k));
        let exact = low + high + c;
        match exact.is_finite() {
            false => Dst::F32(exact as f32).into(),
            true if flushes && exact.abs() < f64::from(f32::MIN_POSITIVE) => Dst::Within32(0.0, 0.0).into(),
            true => Dst::Within32(exact, (low.abs() + high.abs() + c.abs()) * 2f64.powi(-22)).into(),
        }
    };
    let near = |_: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
        for lane in lanes {
            lane.old[0] = random.unit().to_bits();
        }
    };
    let mut cases = vec![
        Case::new("v_fmac_f64_e32 {D}, {A}, {B}", &[Kind::F64; 2], |i| {
            let old = i.lanes[i.lane].old;
            let d = f64::from_bits(u64::from(old[0]) | u64::from(old[1]) << 32);
            f64::from_bits(i.a()).mul_add(f64::from_bits(i.b()), d).into()
        }),
        three("v_mul_legacy_f32", &[Kind::F32; 2], |i, _| {
            let (a, b) = (f(i.a32()), f(i.b32()));
            if a == 0.0 || b == 0.0 { Dst::F32(0.0).into() } else { (a * b).into() }
        }),
        three("v_pk_fmac_f16_e32", &[Kind::F16x2; 2], |i, d| {
            let half = |k: u32| half_fma((i.a32() >> k) as u16, (i.b32() >> k) as u16, (d >> k) as u16);
            Dst::Halves(u32::from(half(0)) | u32::from(half(16)) << 16).into()
        }),
        Case::new("v_dot2c_f32_f16_e32 {d}, {a}, {b}", &[Kind::F16x2; 2], dot).adjusted(near),
        Case::new("v_dot2_f32_f16 {d}, {a}, {b}, {c}", &[Kind::F16x2, Kind::F16x2, Kind::Near], move |i| {
            let lanes = LaneIn { old: [i.c32(), 0, 0, 0], ..i.lanes[i.lane] };
            let mut all = i.lanes.to_vec();
            all[i.lane] = lanes;
            dot(&In { lane: i.lane, wave: i.wave, lanes: &all })
        }),
        integer("v_dot2c_i32_i16", 16),
        integer("v_dot4c_i32_i8", 8),
        integer("v_dot8c_i32_i4", 4),
        // One lane of each row of 16.
        Case::new(
            "v_mov_b32_dpp {d}, {a} row_newbcast:5 row_mask:0xf bank_mask:0xf bound_ctrl:0",
            &[Kind::I32],
            |i| {
                let from = i.lane / 16 * 16 + 5;
                if i.active(from) { (i.lanes[from].a as u32).into() } else { 0u32.into() }
            },
        ),
        Case::new(
            "v_fmac_f64_dpp {D}, {A}, {B} row_newbcast:9 row_mask:0xf bank_mask:0xf",
            &[Kind::F64; 2],
            |i| {
                let from = i.lane / 16 * 16 + 9;
                if !i.active(from) {
                    return Out::kept();
                }
                let old = i.lanes[i.lane].old;
                let d = f64::from_bits(u64::from(old[0]) | u64::from(old[1]) << 32);
                f64::from_bits(i.lanes[from].a).mul_add(f64::from_bits(i.b()), d).into()
            },
        ),
    ];
    if target == Target::Gfx942 {
        cases.extend(gfx942());
    }
    cases
}

fn gfx942() -> Vec<Case> {
    let mut cases = vec![
        Case::new("v_mov_b64_e32 {D}, {A}", &[Kind::I64], |i| i.a().into()),
        Case::new("v_mov_b64_e32 {D}, {SA}", &[Kind::I64], |i| i.wave.sa.into()),
        Case::new("v_mov_b64_e32 {D}, -3", &[Kind::I64], |_| (-3i64 as u64).into()),
        Case::new("v_mov_b64_e32 {D}, 0xfedcba98", &[Kind::I64], |_| 0xfedc_ba98u64.into()),
        Case::new("v_mov_b64_dpp {D}, {A} row_newbcast:3 row_mask:0xf bank_mask:0xf", &[Kind::I64], |i| {
            let from = i.lane / 16 * 16 + 3;
            if i.active(from) { i.lanes[from].a.into() } else { Out::kept() }
        }),
        Case::new("v_fmamk_f32 {d}, {a}, 0x3fc00000, {b}", &[Kind::F32; 2], |i| {
            f(i.a32()).mul_add(1.5, f(i.b32())).into()
        }),
        Case::new("v_fmaak_f32 {d}, {a}, {b}, 0x3fc00000", &[Kind::F32; 2], |i| {
            f(i.a32()).mul_add(f(i.b32()), 1.5).into()
        }),
    ];
    for shift in [0, 1, 4] {
        let text = format!("v_lshl_add_u64 {{D}}, {{A}}, {shift}, {{C}}");
        cases.push(Case::new(text, &[Kind::I64; 3], move |i| (i.a() << shift).wrapping_add(i.c()).into()));
    }
    for (name, format) in [("fp8", EIGHT_4), ("bf8", EIGHT_5)] {
        cases.push(Case::new(format!("v_cvt_f32_{name}_e32 {{d}}, {{a}}"), &[Kind::I32], move |i| {
            format.value(i.a32() as u8).into()
        }));
        let text = format!("v_cvt_f32_{name}_sdwa {{d}}, {{a}} src0_sel:BYTE_2");
        cases.push(Case::new(text, &[Kind::I32], move |i| format.value((i.a32() >> 16) as u8).into()));
        let text = format!("v_cvt_pk_f32_{name}_sdwa {{D}}, {{a}} src0_sel:WORD_1");
        cases.push(Case::new(text, &[Kind::I32], move |i| {
            Dst::Floats([16, 24].map(|k| format.value((i.a32() >> k) as u8))).into()
        }));
        let packed = move |i: &In<'_>| {
            let [a, b] = [i.a32(), i.b32()].map(|x| u32::from(format.nearest(f(x))));
            a | b << 8
        };
        let text = format!("v_cvt_pk_{name}_f32 {{d}}, {{a}}, {{b}}");
        cases.push(Case::new(text.clone(), &[Kind::F32; 2], move |i| {
            (i.old() & 0xffff_0000 | packed(i)).into()
        }));
        cases.push(Case::new(text + " op_sel:[0,0,1]", &[Kind::F32; 2], move |i| {
            (i.old() & 0xffff | packed(i) << 16).into()
        }));
        // A random word of zeros rounds toward zero.
        let text = format!("v_cvt_sr_{name}_f32 {{d}}, {{a}}, 0 op_sel:[0,0,1,0]");
        cases.push(Case::new(text, &[Kind::F32], move |i| {
            (i.old() & !0xff00 | u32::from(format.toward_zero(f(i.a32()))) << 8).into()
        }));
    }
    cases
}

/// A float of 8 bits without infinities: bits of the exponent; its bias is half its range.
#[derive(Clone, Copy)]
pub(crate) struct Eight(u32);

pub(crate) const EIGHT_4: Eight = Eight(4);
pub(crate) const EIGHT_5: Eight = Eight(5);

impl Eight {
    pub(crate) fn value(self, bits: u8) -> f32 {
        if bits == 0x80 {
            return f32::NAN;
        }
        let (mantissa, bias) = (7 - self.0, 1 << (self.0 - 1));
        let exponent = i32::from(bits & 0x7f) >> mantissa;
        let part = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
        let magnitude = match exponent {
            0 => part * 2f64.powi(1 - bias),
            e => (1.0 + part) * 2f64.powi(e - bias),
        };
        (if bits > 0x7f { -magnitude } else { magnitude }) as f32
    }

    /// Returns the nearest value's bits, by trying all; the even one of two.
    pub(crate) fn nearest(self, x: f32) -> u8 {
        let (largest, last) = (f64::from(self.value(0x7f)), f64::from(self.value(0x7e)));
        let magnitude = f64::from(x.abs());
        if x.is_nan() || magnitude >= largest + (largest - last) / 2.0 {
            return 0x80;
        }
        let distance = |&bits: &u8| (f64::from(self.value(bits)) - magnitude).abs();
        let best = (0..=0x7f).min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        best.map_or(0, |bits| if bits > 0 && x < 0.0 { bits | 0x80 } else { bits })
    }

    /// Returns the bits of the largest value that is not above a magnitude.
    fn toward_zero(self, x: f32) -> u8 {
        if x.is_nan() || x.is_infinite() {
            return 0x80;
        }
        let magnitude = f64::from(x.abs());
        let mantissa = 7 - self.0;
        // Beyond the largest value plus one unit nothing is left of the format.
        let largest = f64::from(self.value(0x7f));
        if magnitude >= largest + largest / f64::from((2 << mantissa) - 1) {
            return 0x80;
        }
        let below = (0..=0x7fu8).rev().find(|&bits| f64::from(self.value(bits)) <= magnitude);
        below.map_or(0, |bits| if bits > 0 && x < 0.0 { bits | 0x80 } else { bits })
    }
}

/// Atomic operations on the lane's own memory, at offset 16: the operand c.
fn atomics(target: Target) -> Vec<Case> {
    let glc = if target == Target::Gfx942 { "sc0" } else { "glc" };
    let wait = "s_waitcnt vmcnt(0) lgkmcnt(0)";
    let mut cases = Vec::new();
    type Wide = fn(f64, f64) -> f64;
    let wide: [(&str, Wide); 3] = [
        ("add_f64", |a, c| c + a),
        ("min_f64", |a, c| if a < c { a } else { c }),
        ("max_f64", |a, c| if a > c { a } else { c }),
    ];
    // Signalling NaNs and zeros of two signs are left out: the documents say little.
    let tame = |_: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
        for lane in lanes {
            lane.a = f64::from(random.unit()).to_bits();
            lane.c[0] = (f64::from(random.unit()) * 1e3).to_bits();
        }
    };
    for (name, operation) in wide {
        let value = move |i: &In<'_>| operation(f64::from_bits(i.a()), f64::from_bits(i.c()));
        let text = format!(
            "global_atomic_{name} v1, {{A}}, s[4:5] offset:16\n{wait}\nglobal_load_dwordx2 {{D}}, v1, s[4:5] offset:16\n{wait}"
        );
        cases.push(Case::new(text, &[Kind::F64; 3], move |i| value(i).into()).adjusted(tame));
        let text = format!("global_atomic_{name} {{D}}, v1, {{A}}, s[4:5] offset:16 {glc}\n{wait}");
        cases.push(Case::new(text, &[Kind::F64; 3], |i| i.c().into()).adjusted(tame));
        let flat = format!(
            "v_mov_b32_e32 v40, s4\nv_mov_b32_e32 v41, s5\nv_add_co_u32_e32 v40, vcc, v40, v1\n\
             v_addc_co_u32_e32 v41, vcc, 0, v41, vcc\nflat_atomic_{name} v[40:41], {{A}} offset:16\n{wait}\n\
             global_load_dwordx2 {{D}}, v1, s[4:5] offset:16\n{wait}\ns_mov_b64 vcc, s[16:17]"
        );
        cases.push(Case::new(flat, &[Kind::F64; 3], move |i| value(i).into()).adjusted(tame));
    }
    let floats = |_: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
        for lane in lanes {
            lane.a = u64::from(random.unit().to_bits());
            lane.c[0] = u64::from((random.unit() * 1e3).to_bits());
        }
    };
    let back = format!("{wait}\nglobal_load_dword {{d}}, v1, s[4:5] offset:16\n{wait}");
    let text = format!("global_atomic_add_f32 v1, {{a}}, s[4:5] offset:16\n{back}");
    cases.push(Case::new(text, &[Kind::F32; 3], |i| (f(i.c32()) + f(i.a32())).into()).adjusted(floats));
    let halves = |i: &In<'_>| {
        let sum = |k: u32| to_half((h(i.a32() >> k & 0xffff) + h(i.c32() >> k & 0xffff)) as f32);
        Dst::Halves(u32::from(sum(0)) | u32::from(sum(16)) << 16).into()
    };
    let text = format!("global_atomic_pk_add_f16 v1, {{a}}, s[4:5] offset:16\n{back}");
    cases.push(Case::new(text, &[Kind::F16x2; 3], halves));
    // In LDS, at 16 times the lane.
    let lds = |name: &str, data: &str, result: &str, bytes: u32| {
        format!(
            "v_lshlrev_b32_e32 v40, 4, v0\nds_write_b{} v40, {}\n{name} {data}\ns_waitcnt lgkmcnt(0)\n{result}\n\
             s_waitcnt lgkmcnt(0)",
            8 * bytes,
            if bytes == 8 { "{C}" } else { "{c}" },
        )
    };
    let text = lds("ds_add_f64", "v40, {A}", "ds_read_b64 {D}, v40", 8);
    let sum = |i: &In<'_>| (f64::from_bits(i.a()) + f64::from_bits(i.c())).into();
    cases.push(Case::new(text, &[Kind::F64; 3], sum).adjusted(tame).modes(|k| k.lds = 1024));
    let text = lds("ds_add_rtn_f64", "{D}, v40, {A}", "", 8);
    cases.push(Case::new(text, &[Kind::F64; 3], |i| i.c().into()).adjusted(tame).modes(|k| k.lds = 1024));
    if target == Target::Gfx942 {
        let text = lds("ds_pk_add_f16", "v40, {a}", "ds_read_b32 {d}, v40", 4);
        cases.push(Case::new(text, &[Kind::F16x2; 3], halves).modes(|k| k.lds = 1024));
        let text = lds("ds_pk_add_rtn_f16", "{d}, v40, {a}", "", 4);
        cases.push(Case::new(text, &[Kind::F16x2; 3], |i| i.c32().into()).modes(|k| k.lds = 1024));
        // BF16: with values that are small integers sums are exact.
        let small = |_: &mut WaveIn, lanes: &mut [LaneIn], random: &mut Random| {
            for lane in lanes {
                let mut pair = || {
                    let mut one = || u64::from((random.below(64) as f32 - 32.0).to_bits() >> 16);
                    one() | one() << 16
                };
                (lane.a, lane.c[0]) = (pair(), pair());
            }
        };
        let sums = |i: &In<'_>| {
            let sum = |k: u32| (f(i.a32() >> k << 16) + f(i.c32() >> k << 16)).to_bits() >> 16;
            (sum(0) | sum(16) << 16).into()
        };
        let text = format!("global_atomic_pk_add_bf16 v1, {{a}}, s[4:5] offset:16\n{back}");
        cases.push(Case::new(text, &[Kind::I32; 3], sums).adjusted(small));
        let text = lds("ds_pk_add_bf16", "v40, {a}", "ds_read_b32 {d}, v40", 4);
        cases.push(Case::new(text, &[Kind::I32; 3], sums).adjusted(small).modes(|k| k.lds = 1024));
        let text = lds("ds_pk_add_rtn_bf16", "{d}, v40, {a}", "", 4);
        let old = |i: &In<'_>| i.c32().into();
        cases.push(Case::new(text, &[Kind::I32; 3], old).adjusted(small).modes(|k| k.lds = 1024));
        // From memory into LDS, the lanes' words one after the other from M0 and the offset on.
        for (name, extend) in [
            ("dword", (|x: u32| x) as fn(u32) -> u32),
            ("ubyte", |x| x & 255),
            ("sbyte", |x| x as u8 as i8 as u32),
            ("ushort", |x| x & 0xffff),
            ("sshort", |x| x as u16 as i16 as u32),
        ] {
            let text = format!(
                "s_mov_b32 m0, 0x40\nv_lshlrev_b32_e32 v40, 2, v0\nglobal_load_lds_{name} v1, s[4:5] offset:16\n\
                 s_waitcnt vmcnt(0)\nds_read_b32 {{d}}, v40 offset:80\ns_waitcnt lgkmcnt(0)\ns_mov_b32 m0, s27"
            );
            let formula = move |i: &In<'_>| extend(i.c32()).into();
            cases.push(Case::new(text, &[Kind::I32; 3], formula).modes(|k| k.lds = 512));
        }
    }
    cases
}

/// Caches are not modelled: these do nothing, but are known.
fn caches(target: Target) -> Vec<Case> {
    let text = match target {
        Target::Gfx942 => {
            "buffer_wbl2 sc0 sc1\nbuffer_inv sc1\nglobal_load_dword {d}, v1, s[4:5] sc0 nt sc1\ns_waitcnt vmcnt(0)"
        }
        _ => "buffer_wbl2\nbuffer_invl2\nglobal_load_dword {d}, v1, s[4:5] glc slc scc\ns_waitcnt vmcnt(0)",
    };
    vec![Case::new(text, &[Kind::I32], |i| i.a32().into())]
}

pub(crate) fn all(target: Target) -> Vec<Case> {
    [packed(), accumulators(), doubles_and_dots(target), atomics(target), caches(target)]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn packed_floats() {
    check_on(&CDNA, packed());
}

#[test]
fn accumulation_registers() {
    check_on(&CDNA, accumulators());
}

#[test]
fn doubles_dot_products_and_conversions() {
    CDNA.iter().for_each(|&target| check_on(&[target], doubles_and_dots(target)));
}

#[test]
fn atomic_operations_and_loads_into_lds() {
    CDNA.iter().for_each(|&target| check_on(&[target], atomics(target)));
}

#[test]
fn cache_operations() {
    CDNA.iter().for_each(|&target| check_on(&[target], caches(target)));
}

/// The disassembler prints every instruction of these vectors as llvm-objdump does.
#[test]
fn vectors_of_cdna_disassemble_as_llvm_objdump_prints_them() {
    for target in CDNA {
        let (count, wrong) =
            crate::support::objdump::compare(&object(&all(target), target).1, target, "vectors");
        assert!(count > 1000 && wrong.is_empty(), "{count}: {wrong:?}");
    }
}
