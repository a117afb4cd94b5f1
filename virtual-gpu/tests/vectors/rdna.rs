//! Instructions of gfx1100 and gfx1151 beyond GFX9: 16-bit operations in halves of registers, dot products with chosen signs,
//! two operations at once, masks of 32 lanes, scalar floats (gfx1151).

use crate::support::{GFX11, Random, compile};
use crate::vectors::gfx11::file;
use crate::vectors::harness::{Case, Dst, In, LaneIn, Out, WaveIn, run_on};
use crate::vectors::numbers::{extreme, f, h, half_fma, median, to_half};
use crate::vectors::operands::Kind;
use crate::vectors::scalar::case;
use virtual_gpu::{Checks, Options, Target};

/// Returns 16 bits as the low half of the destination, whose high half stays.
fn low(i: &In<'_>, bits: u16) -> Out {
    (u32::from(bits) | i.old() & 0xffff_0000).into()
}

fn halves() -> Vec<Case> {
    let two = [Kind::I16; 2];
    let third = [Kind::F16; 3];
    vec![
        Case::new("v_not_b16_e64 {d}, {a}", &two[..1], |i| low(i, !i.a() as u16)),
        Case::new("v_and_b16 {d}, {a}, {b}", &two, |i| low(i, (i.a() & i.b()) as u16)),
        Case::new("v_or_b16 {d}, {a}, {b}", &two, |i| low(i, (i.a() | i.b()) as u16)),
        Case::new("v_xor_b16 {d}, {a}, {b}", &two, |i| low(i, (i.a() ^ i.b()) as u16)),
        Case::new("v_cndmask_b16 {d}, {a}, {b}, vcc_lo", &two, |i| {
            low(i, if i.vcc() { i.b() } else { i.a() } as u16)
        }),
        Case::new("v_cvt_i32_i16_e64 {d}, {a}", &two[..1], |i| (i.a() as i16 as i32 as u32).into()),
        Case::new("v_cvt_u32_u16_e64 {d}, {a}", &two[..1], |i| u32::from(i.a() as u16).into()),
        Case::new("v_fmac_f16_e64 {d}, {a}, {b}", &third[..2], |i| {
            Dst::F16Kept(half_fma(i.a() as u16, i.b() as u16, i.old() as u16)).into()
        }),
        Case::new("v_fmamk_f16 {d}, {a}, 0x4248, {b}", &third[..2], |i| {
            Dst::F16Kept(half_fma(i.a() as u16, 0x4248, i.b() as u16)).into()
        }),
        Case::new("v_fmaak_f16 {d}, {a}, {b}, 0x4248", &third[..2], |i| {
            Dst::F16Kept(half_fma(i.a() as u16, i.b() as u16, 0x4248)).into()
        }),
        // Upper halves as sources and as the result.
        Case::new("v_add_nc_u16 {d}, {a}, {b} op_sel:[1,0,1]", &two, |i| {
            (i.old() & 0xffff | (i.a32() >> 16).wrapping_add(i.b32()) << 16).into()
        }),
    ]
}

/// Returns the smaller or larger of the first two and then the other of that and the third.
fn chain(values: [f64; 3], first_largest: bool) -> Option<f64> {
    let [a, b, c] = values.map(|x| (x, false));
    let ordered = values.iter().all(|x| !x.is_nan());
    ordered.then(|| extreme((extreme(a, b, first_largest), false), c, !first_largest))
}

fn choices() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, largest) in [("minmax", false), ("maxmin", true)] {
        cases.push(Case::new(
            format!("v_{name}_f32 {{d}}, {{a}}, {{b}}, {{c}}"),
            &[Kind::F32; 3],
            move |i| {
                let values = [i.a32(), i.b32(), i.c32()].map(|x| f64::from(f(x)));
                chain(values, largest).map_or(Dst::Any, |x| Dst::F32(x as f32)).into()
            },
        ));
        cases.push(Case::new(
            format!("v_{name}_f16 {{d}}, {{a}}, {{b}}, {{c}}"),
            &[Kind::F16; 3],
            move |i| {
                let values = [i.a(), i.b(), i.c()].map(|x| h(x & 0xffff));
                chain(values, largest).map_or(Dst::Any, |x| Dst::F16Kept(to_half(x as f32))).into()
            },
        ));
        let ends = move |a: i64, b: i64, c: i64| if largest { a.max(b).min(c) } else { a.min(b).max(c) };
        cases.push(Case::new(
            format!("v_{name}_i32 {{d}}, {{a}}, {{b}}, {{c}}"),
            &[Kind::I32; 3],
            move |i| {
                let [a, b, c] = [i.a32(), i.b32(), i.c32()].map(|x| i64::from(x as i32));
                (ends(a, b, c) as u32).into()
            },
        ));
        cases.push(Case::new(
            format!("v_{name}_u32 {{d}}, {{a}}, {{b}}, {{c}}"),
            &[Kind::I32; 3],
            move |i| (ends(i.a32().into(), i.b32().into(), i.c32().into()) as u32).into(),
        ));
    }
    cases.push(Case::new("v_xor3_b32 {d}, {a}, {b}, {c}", &[Kind::I32; 3], |i| {
        (i.a32() ^ i.b32() ^ i.c32()).into()
    }));
    cases
}

/// Truncates toward zero into a range; NaN gives 0.
fn truncated(x: f32, least: i64, most: i64) -> u32 {
    if x.is_nan() {
        0
    } else {
        median([f64::from(x).trunc(), least as f64, most as f64]) as i64 as u32 & 0xffff
    }
}

fn floats() -> Vec<Case> {
    let of = |i: &In<'_>| [f(i.a32()), f(i.b32()), f(i.c32())];
    vec![
        Case::new("v_cvt_pk_i16_f32 {d}, {a}, {b}", &[Kind::F32; 2], move |i| {
            let [a, b, _] = of(i).map(|x| truncated(x, -0x8000, 0x7fff));
            (a | b << 16).into()
        }),
        Case::new("v_cvt_pk_u16_f32 {d}, {a}, {b}", &[Kind::F32; 2], move |i| {
            let [a, b, _] = of(i).map(|x| truncated(x, 0, 0xffff));
            (a | b << 16).into()
        }),
        // Zero times anything is zero.
        Case::new("v_fma_dx9_zero_f32 {d}, {a}, {b}, {c}", &[Kind::F32; 3], move |i| {
            let [a, b, c] = of(i);
            if a == 0.0 || b == 0.0 { c.into() } else { a.mul_add(b, c).into() }
        }),
        Case::new("v_fmac_dx9_zero_f32_e64 {d}, {a}, {b}", &[Kind::F32; 2], move |i| {
            let ([a, b, _], d) = (of(i), f(i.old()));
            if a == 0.0 || b == 0.0 { d.into() } else { a.mul_add(b, d).into() }
        }),
    ]
}

fn bf16(bits: u32) -> f64 {
    f64::from(f(bits << 16))
}

/// Returns a sum of products with the error that its order leaves open.
fn sum_of(i: &In<'_>, value: fn(u32) -> f64, third: f64) -> (f64, f64) {
    let product = |k: u32| value(i.a32() >> k & 0xffff) * value(i.b32() >> k & 0xffff);
    let (low, high) = (product(0), product(16));
    (low + high + third, low.abs() + high.abs() + third.abs())
}

/// Returns the sum of products of fields, of which each source's may have signs.
fn dot(i: &In<'_>, bits: u32, signed: [bool; 2]) -> i64 {
    let field = |x: u32, k: u32, signed: bool| {
        let value = i64::from(x >> (k * bits) & ((1 << bits) - 1));
        if signed && value >> (bits - 1) != 0 { value - (1 << bits) } else { value }
    };
    let products = (0..32 / bits).map(|k| field(i.a32(), k, signed[0]) * field(i.b32(), k, signed[1]));
    products.sum::<i64>() + i64::from(i.c32() as i32)
}

fn dots() -> Vec<Case> {
    let mut cases = vec![
        Case::new("v_dot2_f32_bf16 {d}, {a}, {b}, {c}", &[Kind::F16x2, Kind::F16x2, Kind::Near], |i| {
            let (exact, size) = sum_of(i, bf16, f(i.c32()).into());
            let over = !exact.is_finite() || size > f32::MAX.into();
            if over { Dst::Any } else { Dst::Within32(exact, size * 2f64.powi(-22) + 2f64.powi(-148)) }.into()
        }),
        Case::new("v_dot2_f16_f16 {d}, {a}, {b}, {c}", &[Kind::F16x2, Kind::F16x2, Kind::F16], |i| {
            let (exact, _) = sum_of(i, h, h(i.c32() & 0xffff));
            // Halves of doubles are rounded once, unless a float between is a tie.
            let float = exact as f32;
            let once = f64::from(float) == exact || !exact.is_finite();
            if once { Dst::F16Kept(to_half(float)) } else { Dst::Any }.into()
        }),
    ];
    for (bits, name) in [(8, "v_dot4_i32_iu8"), (4, "v_dot8_i32_iu4")] {
        for (text, signed) in [
            ("", [false, false]),
            (" neg_lo:[1,0,0]", [true, false]),
            (" neg_lo:[0,1,0]", [false, true]),
            (" neg_lo:[1,1,0]", [true, true]),
        ] {
            let case = format!("{name} {{d}}, {{a}}, {{b}}, {{c}}{text}");
            let kinds = [Kind::I16x2, Kind::I16x2, Kind::I32];
            cases.push(Case::new(case, &kinds, move |i| (dot(i, bits, signed) as u32).into()));
            let case = format!("{name} {{d}}, {{a}}, {{b}}, {{c}}{text} clamp");
            cases.push(Case::new(case, &kinds, move |i| {
                (dot(i, bits, signed).clamp(i32::MIN.into(), i32::MAX.into()) as u32).into()
            }));
        }
    }
    cases
}

/// Two operations at once: v24 is the result of one, v25 that of the other.
fn pairs() -> Vec<Case> {
    let floats = |text: &str, formula: fn(f32, f32, f32, [f32; 2]) -> [f32; 2]| {
        Case::new(text, &[Kind::F32; 3], move |i: &In<'_>| {
            let old = i.old64();
            let old = [f(old as u32), f((old >> 32) as u32)];
            Dst::Floats(formula(f(i.a32()), f(i.b32()), f(i.c32()), old)).into()
        })
    };
    let words = |text: &str, formula: fn(&In<'_>) -> [u32; 2]| {
        Case::new(text, &[Kind::I32; 3], move |i: &In<'_>| {
            let [low, high] = formula(i);
            (u64::from(low) | u64::from(high) << 32).into()
        })
    };
    vec![
        floats("v_dual_add_f32 v24, {a}, {b} :: v_dual_mul_f32 v25, {b}, v20", |a, b, c, _| [a + b, b * c]),
        floats("v_dual_sub_f32 v24, {a}, {b} :: v_dual_subrev_f32 v25, {b}, v20", |a, b, c, _| {
            [a - b, c - b]
        }),
        floats("v_dual_fmac_f32 v24, {a}, {b} :: v_dual_fmac_f32 v25, {b}, v20", |a, b, c, old| {
            [a.mul_add(b, old[0]), b.mul_add(c, old[1])]
        }),
        floats(
            "v_dual_fmaak_f32 v24, {a}, {b}, 0x40490fdb :: v_dual_fmamk_f32 v25, {b}, 0x40490fdb, v20",
            |a, b, c, _| [a.mul_add(b, f(0x40490fdb)), b.mul_add(f(0x40490fdb), c)],
        ),
        words("v_dual_mov_b32 v24, {a} :: v_dual_add_nc_u32 v25, {b}, v20", |i| {
            [i.a32(), i.b32().wrapping_add(i.c32())]
        }),
        words("v_dual_mov_b32 v24, {sa} :: v_dual_and_b32 v25, {b}, v20", |i| {
            [i.wave.sa as u32, i.b32() & i.c32()]
        }),
        words("v_dual_mov_b32 v24, 0x1234567 :: v_dual_lshlrev_b32 v25, {b}, v20", |i| {
            [0x0123_4567, i.c32() << (i.b32() & 31)]
        }),
        words("v_dual_cndmask_b32 v24, {a}, {b} :: v_dual_cndmask_b32 v25, {b}, v20", |i| {
            if i.vcc() { [i.b32(), i.c32()] } else { [i.a32(), i.b32()] }
        }),
        // Both read before either writes.
        words(
            "v_mov_b32_e32 v24, {a}\nv_mov_b32_e32 v25, {b}\nv_dual_mov_b32 v24, v25 :: v_dual_mov_b32 v25, v24",
            |i| [i.b32(), i.a32()],
        ),
    ]
}

type Masked = fn(u32, u32) -> u32;

fn masks() -> Vec<Case> {
    let operations: [(&str, Masked); 10] = [
        ("s_and_saveexec_b32", |a, exec| a & exec),
        ("s_or_saveexec_b32", |a, exec| a | exec),
        ("s_xor_saveexec_b32", |a, exec| a ^ exec),
        ("s_nand_saveexec_b32", |a, exec| !(a & exec)),
        ("s_nor_saveexec_b32", |a, exec| !(a | exec)),
        ("s_xnor_saveexec_b32", |a, exec| !(a ^ exec)),
        ("s_and_not0_saveexec_b32", |a, exec| !a & exec),
        ("s_or_not0_saveexec_b32", |a, exec| !a | exec),
        ("s_and_not1_saveexec_b32", |a, exec| a & !exec),
        ("s_or_not1_saveexec_b32", |a, exec| a | !exec),
    ];
    let outcome = |i: &In<'_>, result: u32, written: u32| {
        let mut out = Out::kept();
        out.exec = Some(i.wave.exec & !0xffff_ffff | u64::from(result));
        (out.sd32, out.scc) = (Some(written), Some(result != 0));
        out
    };
    let mut cases: Vec<Case> = operations
        .into_iter()
        .map(|(name, operation)| {
            case(format!("{name} {{sd}}, {{sa}}"), move |i| {
                let exec = i.wave.exec as u32;
                outcome(i, operation(i.wave.sa as u32, exec), exec)
            })
        })
        .collect();
    cases.push(case("s_and_not0_wrexec_b32 {sd}, {sa}", move |i| {
        let result = !(i.wave.sa as u32) & i.wave.exec as u32;
        outcome(i, result, result)
    }));
    cases.push(case("s_and_not1_wrexec_b32 {sd}, {sa}", move |i| {
        let result = i.wave.sa as u32 & !(i.wave.exec as u32);
        outcome(i, result, result)
    }));
    cases.push(case("s_pack_hl_b32_b16 {sd}, {sa}, {sb}", |i| {
        let mut out = Out::kept();
        out.sd32 = Some((i.wave.sa as u32) >> 16 | (i.wave.sb as u32) << 16);
        out
    }));
    cases
}

/// Makes scalars floats, as often the special ones, and halves.
fn scalar_floats(wave: &mut WaveIn, _: &mut [LaneIn], random: &mut Random) {
    let (singles, doubles) = (Kind::F32.special(), Kind::F16.special());
    for value in [&mut wave.sa, &mut wave.sb, &mut wave.sc] {
        let special = if random.below(2) == 0 { &singles } else { &doubles };
        let near = u64::from(0x3f80_0000 ^ random.u32() & 0x81ff_ffff);
        *value =
            if random.below(3) == 0 { near } else { special[random.below(special.len() as u32) as usize] };
    }
    if random.below(4) == 0 {
        wave.sb = wave.sa;
    }
}

fn of_scalars() -> Vec<Case> {
    let make = |text: &str, formula: fn(u32, u32, u32) -> Dst| {
        let text = format!("s_mov_b32 s60, {{sc}}\n{text}\nv_mov_b32_e32 {{d}}, s60");
        let own = move |i: &In<'_>| formula(i.wave.sa as u32, i.wave.sb as u32, i.wave.sc as u32).into();
        Case::new(text, &[], own).waves(200).adjusted(scalar_floats)
    };
    let mut cases = vec![
        make("s_add_f32 s60, {sa}, {sb}", |a, b, _| Dst::F32(f(a) + f(b))),
        make("s_sub_f32 s60, {sa}, {sb}", |a, b, _| Dst::F32(f(a) - f(b))),
        make("s_mul_f32 s60, {sa}, {sb}", |a, b, _| Dst::F32(f(a) * f(b))),
        make("s_fmac_f32 s60, {sa}, {sb}", |a, b, c| Dst::F32(f(a).mul_add(f(b), f(c)))),
        make("s_fmaak_f32 s60, {sa}, {sb}, 0x40490fdb", |a, b, _| {
            Dst::F32(f(a).mul_add(f(b), f(0x40490fdb)))
        }),
        make("s_fmamk_f32 s60, {sa}, 0x40490fdb, {sb}", |a, b, _| {
            Dst::F32(f(a).mul_add(f(0x40490fdb), f(b)))
        }),
        make("s_min_f32 s60, {sa}, {sb}", |a, b, _| smaller(a, b, false)),
        make("s_max_f32 s60, {sa}, {sb}", |a, b, _| smaller(a, b, true)),
        make("s_ceil_f32 s60, {sa}", |a, _, _| Dst::F32(f(a).ceil())),
        make("s_floor_f32 s60, {sa}", |a, _, _| Dst::F32(f(a).floor())),
        make("s_trunc_f32 s60, {sa}", |a, _, _| Dst::F32(f(a).trunc())),
        make("s_rndne_f32 s60, {sa}", |a, _, _| Dst::F32(f(a).round_ties_even())),
        make("s_cvt_f32_i32 s60, {sa}", |a, _, _| Dst::F32(a as i32 as f32)),
        make("s_cvt_f32_u32 s60, {sa}", |a, _, _| Dst::F32(a as f32)),
        make("s_cvt_i32_f32 s60, {sa}", |a, _, _| Dst::B32(f(a) as i32 as u32)),
        make("s_cvt_u32_f32 s60, {sa}", |a, _, _| Dst::B32(f(a) as u32)),
        make("s_cvt_f16_f32 s60, {sa}", |a, _, _| Dst::F16(to_half(f(a)))),
        make("s_cvt_f32_f16 s60, {sa}", |a, _, _| Dst::F32(h(a & 0xffff) as f32)),
        make("s_cvt_hi_f32_f16 s60, {sa}", |a, _, _| Dst::F32(h(a >> 16) as f32)),
        make("s_add_f16 s60, {sa}, {sb}", |a, b, _| {
            Dst::F16(to_half((h(a & 0xffff) + h(b & 0xffff)) as f32))
        }),
        make("s_sub_f16 s60, {sa}, {sb}", |a, b, _| {
            Dst::F16(to_half((h(a & 0xffff) - h(b & 0xffff)) as f32))
        }),
        make("s_mul_f16 s60, {sa}, {sb}", |a, b, _| {
            Dst::F16(to_half((h(a & 0xffff) * h(b & 0xffff)) as f32))
        }),
        make("s_fmac_f16 s60, {sa}, {sb}", |a, b, c| Dst::F16(half_fma(a as u16, b as u16, c as u16))),
    ];
    type Relation = fn(f64, f64) -> bool;
    let relations: [(&str, Relation); 14] = [
        ("lt", |a, b| a < b),
        ("eq", |a, b| a == b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        // Not "differs": that holds for NaN, too.
        ("lg", |a, b| a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_ne)),
        ("ge", |a, b| a >= b),
        ("o", |a, b| !unordered(a, b)),
        ("u", unordered),
        ("nge", |a, b| unordered(a, b) || a < b),
        ("nlg", |a, b| unordered(a, b) || a == b),
        ("ngt", |a, b| unordered(a, b) || a <= b),
        ("nle", |a, b| unordered(a, b) || a > b),
        ("neq", |a, b| a != b),
        ("nlt", |a, b| unordered(a, b) || a >= b),
    ];
    type Value = fn(u32) -> f64;
    let kinds: [(&str, Value); 2] = [("f32", |x| f64::from(f(x))), ("f16", |x| h(x & 0xffff))];
    for (name, relation) in relations {
        for (kind, value) in kinds {
            let own = move |i: &In<'_>| {
                let mut out = Out::kept();
                out.scc = Some(relation(value(i.wave.sa as u32), value(i.wave.sb as u32)));
                out
            };
            let text = format!("s_cmp_{name}_{kind} {{sa}}, {{sb}}");
            cases.push(Case::new(text, &[], own).waves(200).adjusted(scalar_floats));
        }
    }
    cases
}

fn unordered(a: f64, b: f64) -> bool {
    a.is_nan() || b.is_nan()
}

fn smaller(a: u32, b: u32, largest: bool) -> Dst {
    let [a, b] = [a, b].map(|x| f64::from(f(x)));
    if unordered(a, b) { Dst::Any } else { Dst::F32(extreme((a, false), (b, false), largest) as f32) }
}

#[test]
fn operations_of_rdna() {
    for target in GFX11 {
        let mut cases: Vec<Case> =
            [halves(), choices(), floats(), dots(), pairs(), masks()].into_iter().flatten().collect();
        if target == Target::Gfx1151 {
            cases.extend(of_scalars());
        }
        let options = Options::default();
        let options = Options { checks: Checks { ranges: false, ..options.checks }, ..options };
        let object = compile::assemble(target, &file(&cases, target));
        let complaints = run_on(target, &object, options, &cases.iter().collect::<Vec<_>>());
        assert!(
            complaints.is_empty(),
            "{} of {} cases:\n{}",
            complaints.len(),
            cases.len(),
            complaints.join("\n")
        );
    }
}
