//! Matrix instructions of gfx90a and gfx942 against a plain product, with the layouts of AMD's matrix instruction
//! calculator: register and lane of each element, the inverse of how the emulator states them.

use crate::support::{Arguments, AsmKernel, CDNA, Random, Session, asm, compile};
use crate::vectors::cdna::{EIGHT_4, EIGHT_5};
use crate::vectors::shapes::Element::{self, Bf8, Bf16, F16, F32, F64, Fp8, I8, Xf32};
use crate::vectors::shapes::{GFX90A, GFX942, Shape};
use virtual_gpu::Target;

/// Words of a lane's record: A at 0, B at 4, the index at 8, C at 16; D replaces C.
const RECORD: usize = 64;
const C: usize = 16;

/// Returns the names of a target's instructions.
pub(crate) fn names(target: Target) -> impl Iterator<Item = &'static str> {
    let shapes = if target == Target::Gfx90a { GFX90A } else { GFX942 };
    shapes.iter().map(|shape| shape.name)
}

/// Modifiers of an instruction, and where its operands are.
#[derive(Clone, Copy, Debug, Default)]
struct Variant {
    cbsz: usize,
    abid: usize,
    blgp: usize,
    /// Negates A, B and C.
    negated: [bool; 3],
    /// C and D, and A and B, in accumulation registers.
    accumulators: [bool; 2],
    /// C is a constant: 3 for integers, 2 for floats.
    constant: bool,
    /// D is apart from C.
    apart: bool,
}

impl Element {
    fn bits(self) -> usize {
        match self {
            I8 | Fp8 | Bf8 => 8,
            F16 | Bf16 => 16,
            F32 | Xf32 => 32,
            F64 => 64,
        }
    }

    /// Returns the bits of a small integer.
    fn encode(self, x: i32) -> u64 {
        let value = x as f32;
        match self {
            F16 => half::f16::from_f32(value).to_bits().into(),
            Bf16 => half::bf16::from_f32(value).to_bits().into(),
            F32 | Xf32 => value.to_bits().into(),
            F64 => f64::from(value).to_bits(),
            I8 => u64::from(x as i8 as u8),
            Fp8 => EIGHT_4.nearest(value).into(),
            Bf8 => EIGHT_5.nearest(value).into(),
        }
    }
}

impl Shape {
    fn wide(&self) -> bool {
        self.kinds[0] == F64
    }

    fn integer(&self) -> bool {
        self.kinds[0] == I8
    }

    /// Returns the registers of A, B, and D.
    fn registers(&self) -> [usize; 3] {
        let elements = self.size * self.depth * self.blocks / 64;
        let words = |kind: Element, count: usize| kind.bits() * count / 32;
        let stored = if self.sparse { elements / 2 } else { elements };
        let wide = if self.wide() { 2 } else { 1 };
        [
            words(self.kinds[0], stored),
            words(self.kinds[1], elements),
            self.size * self.size * self.blocks * wide / 64,
        ]
    }

    /// Returns the lane of A[i][k] or B[k][i] of a block, and its number among the lane's elements.
    fn factor(&self, block: usize, i: usize, k: usize) -> (usize, usize) {
        let each = self.size * self.depth * self.blocks / 64;
        match (self.size, self.blocks) {
            (4, 4) => (4 * block + 16 * k + i, 0),
            (4, _) => (4 * block + i, k),
            (size, 1) => (size * (k / each) + i, k % each),
            (size, _) => (size * block + i, k),
        }
    }

    /// Returns the lane of D[i][j] of a block, and its number among the lane's elements.
    fn result(&self, block: usize, i: usize, j: usize) -> (usize, usize) {
        match (self.size, self.wide()) {
            (4, true) => (16 * i + 4 * block + j, 0),
            (_, true) => (16 * (i % 4) + j, i / 4),
            (4, _) => (4 * block + j, i),
            (16, _) => (16 * (i / 4) + j, 4 * block + i % 4),
            _ => (32 * (i / 4) % 64 + j, 16 * block + 4 * (i / 8) + i % 4),
        }
    }

    /// Returns the text of the instruction, with A in v[8:11], B in v[12:15], the index in v16, C in v[32:63] and D
    /// there or in v[64:95], or in accumulation registers of these numbers.
    fn text(&self, variant: Variant) -> String {
        let [a, b, d] = self.registers();
        let range = |accumulators: bool, first: usize, count: usize| {
            let kind = if accumulators { 'a' } else { 'v' };
            if count == 1 {
                format!("{kind}{first}")
            } else {
                format!("{kind}[{first}:{}]", first + count - 1)
            }
        };
        let [in_sum, in_factors] = variant.accumulators;
        let c = match () {
            () if self.sparse => "v16".to_owned(),
            () if variant.constant => if self.integer() { "3" } else { "2.0" }.to_owned(),
            () => range(in_sum, 32, d),
        };
        let mut text = format!(
            "{} {}, {}, {}, {c}",
            self.name,
            range(in_sum, if variant.apart { 64 } else { 32 }, d),
            range(in_factors, 8, a),
            range(in_factors, 12, b),
        );
        for (name, value) in [("cbsz", variant.cbsz), ("abid", variant.abid), ("blgp", variant.blgp)] {
            if value != 0 {
                text += &format!(" {name}:{value}");
            }
        }
        if variant.negated.contains(&true) {
            let [a, b, c] = variant.negated.map(u8::from);
            text += &format!(" neg:[{a},{b},{c}]");
        }
        text
    }
}

/// Returns the kernel of an instruction: it loads a lane's record, executes with a part of EXEC, stores D.
fn kernel(name: &str, text: &str, variant: Variant) -> AsmKernel {
    let mut body = String::from(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32_e32 v1, 8, v0\ns_waitcnt lgkmcnt(0)\n\
         global_load_dwordx4 v[8:11], v1, s[4:5]\nglobal_load_dwordx4 v[12:15], v1, s[4:5] offset:16\n\
         global_load_dword v16, v1, s[4:5] offset:32\n",
    );
    for n in 0..8 {
        let (first, at) = (32 + 4 * n, 4 * C + 16 * n);
        body += &format!("global_load_dwordx4 v[{first}:{}], v1, s[4:5] offset:{at}\n", first + 3);
    }
    body += "s_waitcnt vmcnt(0)\n";
    let [in_sum, in_factors] = variant.accumulators;
    let to = if variant.apart { 64 } else { 32 };
    let mut moved: Vec<usize> = if in_factors { (8..16).collect() } else { Vec::new() };
    moved.extend(if in_sum { 32..64 } else { 0..0 });
    for n in moved {
        // The vector register is destroyed: the instruction must not read it.
        body += &format!("v_accvgpr_write_b32 a{n}, v{n}\nv_mov_b32_e32 v{n}, -1\n");
    }
    body += &format!("s_mov_b64 exec, 0x1234\n{text}\ns_mov_b64 exec, -1\ns_nop 15\ns_nop 15\n");
    for n in 0..32 {
        let from = to + n;
        let value = if in_sum {
            format!("v_accvgpr_read_b32 v2, a{from}\n")
        } else {
            format!("v_mov_b32_e32 v2, v{from}\n")
        };
        body += &format!("{value}global_store_dword v1, v2, s[4:5] offset:{}\n", 4 * (C + n));
    }
    AsmKernel { arguments: 8, vgprs: 512, ..AsmKernel::new(name, &body) }
}

/// The matrices of an instruction: small integers. `a[block][i][k]`, `b[block][k][j]`, `c[block][i][j]`.
struct Matrices {
    a: Vec<i32>,
    b: Vec<i32>,
    c: Vec<i32>,
    records: Vec<[u32; RECORD]>,
}

fn store(record: &mut [u32; RECORD], first: usize, bits: usize, element: usize, value: u64) {
    let at = first * 32 + element * bits;
    for bit in 0..bits {
        record[(at + bit) / 32] |= ((value >> bit & 1) as u32) << ((at + bit) % 32);
    }
}

fn matrices(shape: &Shape, variant: Variant, random: &mut Random) -> Matrices {
    let Shape { size, depth, blocks, kinds, .. } = *shape;
    let mut records = vec![[0; RECORD]; 64];
    let mut small = |limit: u32| random.below(2 * limit + 1) as i32 - limit as i32;
    let (mut a, mut b) = (vec![0; blocks * size * depth], vec![0; blocks * size * depth]);
    let mut c = vec![0; blocks * size * size];
    for block in 0..blocks {
        for i in 0..size {
            for k in 0..depth {
                let (lane, element) = shape.factor(block, i, k);
                let value = small(4);
                b[(block * depth + k) * size + i] = value;
                store(&mut records[lane], 4, kinds[1].bits(), element, kinds[1].encode(value));
                if !shape.sparse {
                    let value = small(4);
                    a[(block * size + i) * depth + k] = value;
                    store(&mut records[lane], 0, kinds[0].bits(), element, kinds[0].encode(value));
                }
            }
            for j in 0..size {
                let value = small(50);
                c[(block * size + i) * size + j] = value;
                let (lane, element) = shape.result(block, i, j);
                let kind = match () {
                    () if shape.wide() => F64,
                    () => F32,
                };
                let bits = if shape.integer() { u64::from(value as u32) } else { kind.encode(value) };
                store(&mut records[lane], C, kind.bits(), element, bits);
            }
        }
    }
    if shape.sparse {
        // Of four elements two are stored; two bits for each say which. The other bits of the index must not matter.
        let each = size * depth / 64;
        let set = if variant.cbsz == 0 { variant.abid * each % 32 } else { 0 };
        for record in &mut records {
            record[8] = small(1 << 30) as u32;
        }
        for i in 0..size {
            for group in 0..depth / 4 {
                let (lane, element) = shape.factor(0, i, 4 * group);
                let first = small(1).unsigned_abs() as usize;
                for (n, place) in
                    [first, first + 1 + small(1).unsigned_abs() as usize].into_iter().enumerate()
                {
                    let value = small(4);
                    a[i * depth + 4 * group + place] = value;
                    let stored = element / 2 + n;
                    store(&mut records[lane], 0, kinds[0].bits(), stored, kinds[0].encode(value));
                    let shift = set + 2 * stored;
                    let index = &mut records[lane][8];
                    *index = *index & !(3 << shift) | (place as u32) << shift;
                }
            }
        }
    }
    Matrices { a, b, c, records }
}

/// Returns D by its definition.
fn product(shape: &Shape, variant: Variant, m: &Matrices) -> Vec<i32> {
    let Shape { size, depth, blocks, .. } = *shape;
    let mut d = m.c.clone();
    let sign = |n: usize| if variant.negated[n] { -1 } else { 1 };
    // B as the lanes' pattern delivers it.
    let mut b = vec![0; m.b.len()];
    for block in 0..blocks {
        for (k, j) in (0..depth).flat_map(|k| (0..size).map(move |j| (k, j))) {
            let (lane, element) = shape.factor(block, j, k);
            let from = match variant.blgp {
                0 => lane,
                1 => lane % 32,
                2 => lane % 32 + 32,
                3 => (lane + 16) % 64,
                n => lane % 16 + 16 * (n - 4),
            };
            let mut all =
                (0..blocks).flat_map(|x| (0..depth).flat_map(move |y| (0..size).map(move |z| (x, y, z))));
            let place = all.find(|&(x, y, z)| shape.factor(x, z, y) == (from, element));
            let (x, y, z) = place.expect("every place of a lane holds an element");
            b[(block * depth + k) * size + j] = m.b[(x * depth + y) * size + z];
        }
    }
    for block in 0..blocks {
        let group = if shape.sparse { 1 } else { 1 << variant.cbsz };
        let source = if shape.sparse { block } else { block / group * group + variant.abid % group };
        for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
            let d = &mut d[(block * size + i) * size + j];
            let start = match () {
                () if variant.constant => {
                    if shape.integer() {
                        3
                    } else {
                        2
                    }
                }
                () => *d,
            };
            let terms =
                (0..depth).map(|k| m.a[(source * size + i) * depth + k] * b[(block * depth + k) * size + j]);
            *d = sign(2) * start + sign(0) * sign(1) * terms.sum::<i32>();
        }
    }
    d
}

/// Returns the modifiers that an instruction supports, one after the other.
fn variants(shape: &Shape, target: Target) -> Vec<Variant> {
    let plain = Variant::default();
    let mut all = vec![
        plain,
        Variant { apart: true, ..plain },
        Variant { accumulators: [true, false], ..plain },
        Variant { accumulators: [false, true], ..plain },
        Variant { accumulators: [true, true], apart: !shape.sparse, ..plain },
    ];
    if shape.sparse {
        all.retain(|v| !v.apart);
        let sets = if shape.kinds[0].bits() == 8 { 2 } else { 4 };
        all.extend((1..sets).map(|abid| Variant { abid, ..plain }));
        all.push(Variant { cbsz: 1, abid: 1, ..plain });
        return all;
    }
    all.push(Variant { constant: true, apart: true, ..plain });
    if shape.wide() {
        if target == Target::Gfx942 {
            all.extend((1..8).map(|n| Variant { negated: [0, 1, 2].map(|i| n >> i & 1 != 0), ..plain }));
        }
        return all;
    }
    let shared = shape.blocks.ilog2() as usize;
    for cbsz in 1..=shared {
        all.extend([0, 1, (1 << cbsz) - 1].map(|abid| Variant { cbsz, abid, ..plain }));
    }
    if matches!(shape.kinds[0], F32 | F16 | Bf16) {
        all.extend((1..8).map(|blgp| Variant { blgp, ..plain }));
    }
    all
}

/// Compares all variants of the instructions of a target with their definition.
#[test]
fn products_of_small_integers() {
    for (target, shapes) in CDNA.into_iter().zip([GFX90A, GFX942]) {
        let cases: Vec<(&Shape, Variant)> =
            shapes.iter().flat_map(|s| variants(s, target).into_iter().map(move |v| (s, v))).collect();
        let kernels: Vec<AsmKernel> = cases
            .iter()
            .enumerate()
            .map(|(n, (shape, variant))| kernel(&format!("k{n}"), &shape.text(*variant), *variant))
            .collect();
        let session = Session::new(target, "matrices", &compile::assemble(target, &asm::file("", &kernels)));
        let mut random = Random::new(7);
        for (n, &(shape, variant)) in cases.iter().enumerate() {
            let m = matrices(shape, variant, &mut random);
            let (want, buffer) = (product(shape, variant, &m), session.upload(&m.records));
            let counters = session.run(&format!("k{n}"), [1; 3], [64, 1, 1], &Arguments::new().add(buffer));
            assert_eq!(counters.matrix, 1);
            let records: Vec<[u32; RECORD]> = session.download(buffer, 64);
            let text = shape.text(variant);
            let Shape { size, blocks, .. } = *shape;
            for block in 0..blocks {
                for (i, j) in (0..size).flat_map(|i| (0..size).map(move |j| (i, j))) {
                    let (lane, element) = shape.result(block, i, j);
                    let word = |n: usize| records[lane][C + n];
                    let got = match () {
                        () if shape.integer() => f64::from(word(element) as i32),
                        () if shape.wide() => f64::from_bits(
                            u64::from(word(2 * element)) | u64::from(word(2 * element + 1)) << 32,
                        ),
                        () => f64::from(f32::from_bits(word(element))),
                    };
                    let want = f64::from(want[(block * size + i) * size + j]);
                    assert_eq!(got, want, "{} {text}: block {block}, {i}, {j}", target.name());
                }
            }
        }
        println!("{}: {} matrix instructions with modifiers", target.name(), cases.len());
    }
}

/// Runs one instruction with the same bits in all places of A and B, and C; returns D's first word.
fn uniform(target: Target, text: &str, [a, b, c]: [u32; 3]) -> u32 {
    let kernels = [kernel("k", text, Variant::default())];
    let session = Session::new(target, text, &compile::assemble(target, &asm::file("", &kernels)));
    let mut record = [c; RECORD];
    record[..4].fill(a);
    record[4..8].fill(b);
    let buffer = session.upload(&[record; 64]);
    session.run("k", [1; 3], [64, 1, 1], &Arguments::new().add(buffer));
    session.download::<[u32; RECORD]>(buffer, 1)[0][C]
}

/// gfx90a replaces denormals of halves and BF16 with zeros, and those of results; gfx942 does not, nor F32 matrices.
#[test]
fn denormals() {
    let one = 0x3c00_3c00;
    let [old, new] = CDNA;
    // 16 products of the smallest half and 1.
    let text = "v[32:35], v[8:9], v[12:13], v[32:35]";
    let smallest = |x: u32| f64::from(f32::from_bits(x)) * 2f64.powi(24);
    let f16 = [(old, "v_mfma_f32_16x16x16f16"), (new, "v_mfma_f32_16x16x16_f16")];
    let got =
        f16.map(|(target, name)| smallest(uniform(target, &format!("{name} {text}"), [0x0001_0001, one, 0])));
    assert_eq!(got, [0.0, 16.0]);
    // The accumulator.
    let got = f16.map(|(target, name)| uniform(target, &format!("{name} {text}"), [0, one, 0x8000_0005]));
    assert_eq!(got.map(|x| x & 0x7fff_ffff), [0, 5]);
    // BF16: the smallest normal value times 2^-1 is a denormal F32.
    let bf16 = [(old, "v_mfma_f32_16x16x16bf16_1k"), (new, "v_mfma_f32_16x16x16_bf16")];
    let got =
        bf16.map(|(target, name)| uniform(target, &format!("{name} {text}"), [0x0080_0080, 0x3c80_3c80, 0]));
    // 16 * 2^-126 * 2^-6 = 2^-128
    assert_eq!(got, [0, 0x0020_0000]);
    let text = "v[32:35], v8, v12, v[32:35]";
    let f32s = [(old, "v_mfma_f32_16x16x4f32"), (new, "v_mfma_f32_16x16x4_f32")];
    let got = f32s.map(|(target, name)| uniform(target, &format!("{name} {text}"), [3, 0x3f80_0000, 1]));
    assert_eq!(got, [13, 13]);
}

/// Sums are rounded once; XF32 keeps 10 bits of a mantissa.
#[test]
fn rounding() {
    let target = Target::Gfx942;
    let text = "v_mfma_f32_16x16x16_f16 v[32:35], v[8:9], v[12:13], v[32:35]";
    // 1 + 16 * 2^-13 * 2^-14 (below half a unit) + ... is 1 + 2^-23: each product alone would vanish.
    let got = uniform(target, text, [0x0800_0800, 0x0400_0400, 0x3f80_0000]);
    assert_eq!(got, 0x3f80_0001);
    let text = "v_mfma_f32_16x16x8_xf32 v[32:35], v[8:9], v[12:13], 0";
    let product = |x: u32| f32::from_bits(uniform(target, text, [x, 0x3f80_0000, 0])) / 8.0;
    assert_eq!(product(0x3f80_1000), 1.0, "a tie goes to the even value");
    assert_eq!(product(0x3f80_1001), f32::from_bits(0x3f80_2000));
    assert_eq!(product(0x3f80_3000), f32::from_bits(0x3f80_4000));
}
