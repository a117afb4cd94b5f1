//! Generated instructions of GFX11: words of each format with random fields are disassembled exactly as llvm-objdump does.

use crate::support::{self, AsmKernel, Random, asm, compile, objdump};
use virtual_gpu::{Target, disassemble};

/// Words for each generated instruction: the longest has three, and one more is never read.
const WORDS: usize = 4;

/// No operation: it follows each generated instruction.
const NOP: u32 = 0xbf80_0000;

/// Instructions that are not decoded, by the beginning of their names: they belong to graphics, or no compiler emits them.
const WITHOUT: &[&str] = &[
    "buffer_load_format",
    "buffer_store_format",
    "buffer_load_d16_format",
    "buffer_store_d16_format",
    "buffer_load_d16_hi_format",
    "buffer_store_d16_hi_format",
    "buffer_load_lds",
    "ds_bvh_stack",
    "s_atc_probe",
    "s_version",
];

struct Words<'a>(&'a mut Random);

impl Words<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A vector register. The first 128 are enough: the upper ones are halves where operands have 16 bits.
    fn vector(&mut self) -> u32 {
        self.below(120)
    }

    /// A source of 32 bits or more: scalars are at numbers that ranges of them may have.
    fn source(&mut self) -> u32 {
        const CONSTANTS: [u32; 12] = [106, 124, 126, 128, 129, 192, 193, 208, 240, 243, 247, 248];
        match self.below(8) {
            0 => 4 * self.below(24),
            1 => CONSTANTS[self.below(12) as usize],
            2 if self.one_in(2) => 255,
            _ => 256 + self.vector(),
        }
    }

    fn scalar(&mut self) -> u32 {
        if self.one_in(8) {
            [106, 125, 126, 128, 193, 255, 242][self.below(7) as usize]
        } else {
            4 * self.below(24)
        }
    }

    /// A literal: often one that is printed as a value.
    fn literal(&mut self) -> u32 {
        const SPECIAL: [u32; 12] = [
            0,
            1,
            64,
            65,
            0xffff_ffff,
            0xffff,
            0x3c00,
            0x3118,
            0x3f80_0000,
            0xbf00_0000,
            0x3ff0_0000,
            0x3e22_f983,
        ];
        if self.one_in(2) { SPECIAL[self.below(12) as usize] } else { self.0.u32() }
    }

    /// The second word of DPP: rows of 16 lanes. Sources of integers have no signs.
    fn dpp16(&mut self) -> u32 {
        let control = match self.below(8) {
            0 => 0x101 + self.below(15),
            1 => 0x111 + self.below(15),
            2 => 0x121 + self.below(15),
            3 => 0x140 + self.below(2),
            4 => 0x150 + self.below(32),
            _ => self.below(256),
        };
        self.vector() | control << 8 | self.below(4) << 18 | self.below(256) << 24
    }

    fn dpp8(&mut self) -> u32 {
        self.vector() | self.0.u32() << 8
    }

    /// Replaces the first source of a vector instruction by one of DPP, sometimes; returns it and the next word.
    fn first(&mut self) -> (u32, u32) {
        match self.below(12) {
            0 => (250, self.dpp16()),
            1 => (233 + self.below(2), self.dpp8()),
            _ => (self.source(), self.literal()),
        }
    }

    /// VOP1, VOP2 and VOPC.
    fn short(&mut self) -> Vec<u32> {
        let (source, next) = self.first();
        let (dst, second) = (self.vector(), self.vector());
        let first = match self.below(4) {
            0 => 0x7e00_0000 | dst << 17 | self.below(0x6c) << 9 | source,
            1 => 0x7c00_0000 | self.below(256) << 17 | second << 9 | source,
            _ => (1 + self.below(0x3c)) << 25 | dst << 17 | second << 9 | source,
        };
        vec![first, next]
    }

    fn long(&mut self) -> Vec<u32> {
        let code = match self.below(5) {
            0 => self.below(0x100),
            1 => 0x100 + self.below(0x3c),
            2 => 0x180 + self.below(0x6c),
            3 => 0x300 + self.below(0x65),
            _ => 0x209 + self.below(0x60),
        };
        let (source, next) = self.first();
        // Where a source has no signs, and where there is no result to multiply, the bits have to be 0.
        let signs = if self.one_in(3) { self.below(8) } else { 0 };
        let absolute = if self.one_in(3) { self.below(8) } else { 0 };
        let scaled = if self.one_in(6) { self.below(4) } else { 0 };
        let clamped = u32::from(self.one_in(8));
        let halves = matches!(code, 0x241 | 0x248..=0x254 | 0x303 | 0x304 | 0x30d | 0x30e);
        let op_sel = if halves && self.one_in(2) { self.below(16) } else { 0 };
        let (carry, dst) =
            (4 * self.below(24), if code < 0x100 { 4 * self.below(24) } else { self.vector() });
        let dst = if (0x80..0x100).contains(&code) { 126 } else { dst };
        let has_carry = matches!(code, 0x120..=0x122 | 0x2fc..=0x302);
        let fields = if has_carry { carry << 8 } else { absolute << 8 | op_sel << 11 };
        let third = match code {
            0x120..=0x122 | 0x101 | 0x25d => 4 * self.below(24),
            0x25b | 0x25c => self.scalar(),
            _ if !(0x200..=0x2ff).contains(&code) => 0,
            _ => self.source(),
        };
        let second = match code {
            0x25b | 0x25c | 0x360 | 0x361 => self.scalar(),
            0x180..=0x1ff => 0,
            _ => self.source(),
        };
        let sources = source | additional(source, second) << 9 | additional(source, third) << 18;
        vec![
            0xd400_0000 | code << 16 | clamped << 15 | fields | dst,
            sources | scaled << 27 | signs << 29,
            next,
        ]
    }

    fn packed(&mut self) -> Vec<u32> {
        let code = if self.one_in(5) { 0x40 + self.below(6) } else { self.below(0x23) };
        let matrix = code >= 0x40;
        let (source, next) = if matrix { (256 + self.vector(), 0) } else { self.first() };
        // Operands that may be halves print constants in ways of their own.
        let special = matches!(code, 0x1a | 0x20..=0x22);
        let source = if special && (source < 233 || source == 255) { 256 + self.vector() } else { source };
        let second = if matrix || special { 256 + self.vector() } else { self.source() };
        let third = match code {
            _ if special => 256 + self.vector(),
            0 | 9 | 14 | 0x13.. => self.source(),
            _ => 0,
        };
        let signs = if self.one_in(3) { self.below(64) } else { 0 };
        let halves = if self.one_in(3) { self.below(64) } else { 0x38 };
        let clamped = u32::from(self.one_in(8));
        let first = 0xcc00_0000 | code << 16 | clamped << 15 | (halves >> 5 & 1) << 14 | (halves & 7) << 11;
        let sources = source | additional(source, second) << 9 | additional(source, third) << 18;
        vec![
            first | (signs >> 3) << 8 | self.vector(),
            sources | (halves >> 3 & 3) << 27 | (signs & 7) << 29,
            next,
        ]
    }

    fn pair(&mut self) -> Vec<u32> {
        let (x, y) = (self.below(13), self.below(19));
        let second = |words: &mut Self, code: u32| if code == 8 { 0 } else { words.vector() };
        let first = 0xc800_0000 | x << 22 | y << 17 | second(self, x) << 9 | self.source();
        let word = self.vector() << 24 | self.below(64) << 17 | second(self, y) << 9 | self.source();
        vec![first, word, self.literal()]
    }

    fn scalar_alu(&mut self) -> Vec<u32> {
        let (a, b, dst) = (self.scalar(), self.scalar(), 4 * self.below(24));
        let word = match self.below(5) {
            0 => 0xbe80_0000 | self.below(0x70) << 8 | dst << 16 | a,
            1 => 0xbf00_0000 | self.below(0x60) << 16 | b << 8 | a,
            2 => 0xb000_0000 | self.below(0x1c) << 23 | dst << 16 | self.below(0x1_0000),
            3 => 0xbf80_0000 | self.below(0x3e) << 16 | if self.one_in(2) { 0 } else { self.below(0x1_0000) },
            _ => 0x8000_0000 | self.below(0x4f) << 23 | dst << 16 | b << 8 | a,
        };
        vec![word, self.literal()]
    }

    fn scalar_memory(&mut self) -> Vec<u32> {
        let code = if self.one_in(8) { 0x20 + self.below(2) } else { self.below(13) };
        if code >= 0x20 {
            return vec![0xf400_0000 | code << 18, 0xf800_0000];
        }
        let offset = if self.one_in(3) { 0 } else { self.below(1 << 21) };
        let register = if self.one_in(2) { 124 } else { self.below(100) };
        let (dst, base) = (16 * self.below(6), 2 * self.below(24));
        vec![0xf400_0000 | code << 18 | self.below(4) << 13 | dst << 6 | base, register << 25 | offset]
    }

    fn lds(&mut self) -> Vec<u32> {
        // Registers that an instruction does not have are 0.
        let registers: u32 = (0..4).map(|i| if self.one_in(3) { 0 } else { self.vector() << (8 * i) }).sum();
        let offset = if self.one_in(3) { 0 } else { self.below(1 << 16) };
        vec![0xd800_0000 | self.below(256) << 18 | offset, registers]
    }

    fn flat(&mut self) -> Vec<u32> {
        let segment = self.below(3);
        let base = match segment {
            0 => 124,
            _ if self.one_in(2) => 124,
            _ => 2 * self.below(50),
        };
        let vector = if segment == 1 { self.below(2) << 23 } else { 0 };
        let offset = if self.one_in(3) { 0 } else { self.below(1 << 13) };
        let first =
            0xdc00_0000 | (0x10 + self.below(0x48)) << 18 | segment << 16 | self.below(8) << 13 | offset;
        let (address, data) = (self.vector(), if self.one_in(2) { 0 } else { self.vector() });
        let dst = if self.one_in(2) { 0 } else { self.vector() };
        vec![first, dst << 24 | vector | base << 16 | data << 8 | address]
    }

    fn buffer(&mut self) -> Vec<u32> {
        let offset = if self.one_in(3) { 0 } else { self.below(1 << 12) };
        let first = 0xe000_0000 | (0x10 + self.below(0x48)) << 18 | self.below(8) << 12 | offset;
        let soffset = if self.one_in(3) { 128 } else { self.below(100) };
        let resource = self.below(24) << 16;
        vec![first, soffset << 24 | self.below(4) << 22 | resource | self.vector() << 8 | self.vector()]
    }

    fn instruction(&mut self) -> Vec<u32> {
        match self.below(16) {
            0..=2 => self.short(),
            3..=5 => self.long(),
            6 | 7 => self.packed(),
            8 | 9 => self.pair(),
            10 | 11 => self.scalar_alu(),
            12 => self.scalar_memory(),
            13 => self.lds(),
            14 => self.flat(),
            _ => self.buffer(),
        }
    }
}

/// Returns a source additional the first one: with DPP there is no literal.
fn additional(first: u32, source: u32) -> u32 {
    if [233, 234, 250].contains(&first) && source == 255 { 128 } else { source }
}

/// Returns a code object of generated instructions, and the address of the first.
fn object(target: Target, count: usize) -> (Vec<u8>, u64) {
    use object::{Object as _, ObjectSymbol as _};
    use std::fmt::Write as _;
    let mut random = Random::new(11);
    let mut body = String::from("room:\n");
    for _ in 0..count {
        let mut words = Words(&mut random).instruction();
        words.resize(WORDS, NOP);
        let _ = writeln!(body, ".long {}, {}, {}, {}", words[0], words[1], words[2], words[3]);
    }
    let image = compile::assemble(target, &asm::file_for(target, "", &[AsmKernel::new("generated", &body)]));
    let file = object::File::parse(&*image).expect("the linker wrote an ELF file");
    let room = file.symbols().find(|s| s.name() == Ok("room")).expect("the room has a name").address();
    (image, room)
}

#[test]
fn generated_instructions_decode_as_llvm_objdump_prints_them() {
    const COUNT: usize = 50_000;
    for target in support::GFX11 {
        let (image, room) = object(target, COUNT);
        let wanted: std::collections::HashMap<u64, String> =
            objdump::listing(&image, target).into_iter().map(|(at, text, _)| (at, text)).collect();
        let addresses: Vec<u64> = (0..COUNT).map(|n| room + (4 * WORDS * n) as u64).collect();
        let lines = disassemble(&image, target, &addresses).expect("the object is whole");
        let (mut same, mut loose, mut wrong) = (0, 0, Vec::new());
        for line in &lines {
            let want = wanted.get(&line.address).map_or("", String::as_str);
            // Registers that do not exist, or that an operand cannot be, are noted, and signs of integers read otherwise.
            if want.contains("/*") || want.contains("sext(") {
                continue;
            }
            let known = !want.is_empty() && !want.starts_with(".long") && !want.starts_with("v_illegal");
            match line.text.as_deref() {
                Some(got) if got == want => same += 1,
                _ if WITHOUT.iter().any(|name| want.starts_with(name)) => {}
                None if !known => {}
                // Bits that have no meaning are not checked.
                Some(_) if !known => loose += 1,
                got => wrong.push(format!("'{}', llvm-objdump: '{want}'", got.unwrap_or("no instruction"))),
            }
        }
        println!("{}: {same} are the same, {loose} only known here", target.name());
        let shown = wrong[..wrong.len().min(40)].join("\n");
        assert!(wrong.is_empty(), "{} differ on {}:\n{shown}", wrong.len(), target.name());
        assert!(same > COUNT / 2, "{same} of {COUNT} are instructions");
    }
}
