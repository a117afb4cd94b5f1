//! Machine code and its decoded instructions, page by page: code objects are large, and most of them is never executed.

use crate::counters::Counters;
use crate::isa::inst::{Body, Inst};
use crate::isa::op::memory::{Op, ScalarOp};
use crate::isa::op::scalar::Control;
use crate::isa::plan::Usual;
use crate::isa::registers::Registers;
use crate::isa::short::Short;
use crate::isa::{Effects, Isa, Rate, decode, effects};
use crate::memory::{Region, WeakRegion};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Words of a page.
const PAGE: usize = 1024;
/// Words after the first one of the longest instruction.
const AHEAD: usize = 2;

/// Words that can be executed. A page is read when its first instruction is executed, a block of instructions decoded
/// when it is executed; both are kept, as by an instruction cache.
pub(crate) struct Text {
    /// Address of the first word: relative to the loaded object, or in memory.
    pub(crate) base: u64,
    source: Source,
    /// Number of words.
    words: usize,
    pages: Vec<OnceLock<Box<Page>>>,
    /// Number of decoded blocks.
    blocks: AtomicUsize,
    isa: Isa,
}

enum Source {
    Words(Vec<u32>),
    /// It keeps no memory: whoever executes the text does.
    Memory(WeakRegion),
}

/// Instructions that are executed one after the other: only the last one may go elsewhere or stop.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Block {
    /// In short. Instructions are large; a loop of short ones stays in the host's nearest cache.
    pub(crate) short: Vec<Short>,
    /// Sections after whose last instruction the registers change that memory is going to fill.
    pub(crate) sections: Vec<Section>,
    /// Number among the blocks of the text, in the order in which they were decoded.
    pub(crate) number: usize,
    /// The word after the last instruction, and that of the last one.
    pub(crate) end: usize,
    pub(crate) last: usize,
    /// Bits of MODE that are 1 and 0 where all short instructions may be executed as such.
    pub(crate) mode: Usual,
    pub(crate) instructions: Vec<Whole>,
    /// Counts of one execution, without bytes.
    pub(crate) counts: Counters,
}

/// Where an instruction stands, and all of it, if it is needed: most are executed in short, and decoding would spend its
/// time on memory.
pub(crate) struct Whole {
    /// Its first word in the text.
    pub(crate) word: usize,
    full: OnceLock<Option<Box<Full>>>,
}

/// An instruction in full.
pub(crate) struct Full {
    pub(crate) effects: Effects,
    pub(crate) inst: Inst,
}

impl Full {
    fn new(inst: Inst) -> Box<Full> {
        Box::new(Full { effects: effects(&inst), inst })
    }
}

impl Block {
    /// Returns an instruction of a text in full.
    #[inline(always)]
    pub(crate) fn full(&self, n: usize, text: &Text) -> Option<&Full> {
        let Whole { word, full } = &self.instructions[n];
        match full.get() {
            Some(known) => known.as_deref(),
            None => full.get_or_init(|| text.at(*word).map(Full::new)).as_deref(),
        }
    }
}

/// A section of a block.
pub(crate) struct Section {
    /// Index of the instruction after its last one.
    pub(crate) end: usize,
    /// Registers that its instructions use.
    pub(crate) used: Registers,
}

/// Decoded blocks of a page, by their first word.
struct Page {
    /// Its words and the next ones, into which its last instruction may extend.
    words: Vec<u32>,
    blocks: [OnceLock<Option<Box<Block>>>; PAGE],
}

impl Page {
    const fn new(words: Vec<u32>) -> Page {
        Page { words, blocks: [const { OnceLock::new() }; PAGE] }
    }

    /// Decodes the instruction at a word of the page.
    fn decode(&self, word: usize, isa: Isa) -> Option<Inst> {
        let words = self.words.get(word..self.words.len().min(word + 1 + AHEAD))?;
        decode(words, isa)
    }

    /// Returns the block that begins at a word of the page, whose first word is `first`.
    #[inline(never)]
    fn block(&self, word: usize, first: usize, text: &Text) -> Option<&Block> {
        self.blocks[word].get_or_init(|| self.read_block(word, first, text)).as_deref()
    }

    fn read_block(&self, word: usize, first: usize, text: &Text) -> Option<Box<Block>> {
        let isa = text.isa;
        let mut block =
            Block { number: text.blocks.fetch_add(1, Relaxed), end: first + word, ..Block::default() };
        let (mut word, mut used) = (word, Registers::default());
        while word < PAGE
            && let Some(inst) = self.decode(word, isa)
        {
            let (effects, short) = (effects(&inst), Short::of(&inst));
            count(&inst, &mut block.counts);
            block.mode.add(inst.plan.usual, &short);
            used.add(effects.used);
            let at = first + word;
            word += usize::from(inst.words);
            let (ends, ends_section) = (ends_block(&inst), ends_section(&inst));
            block.last = at;
            let other = matches!(short, Short::Other);
            let full = if other { Some(Box::new(Full { effects, inst })).into() } else { OnceLock::new() };
            block.short.push(short);
            block.instructions.push(Whole { word: at, full });
            if ends || ends_section {
                let end = block.instructions.len();
                block.sections.push(Section { end, used: std::mem::take(&mut used) });
            }
            if ends {
                break;
            }
        }
        let end = block.instructions.len();
        if block.sections.last().is_none_or(|section| section.end < end) {
            block.sections.push(Section { end, used });
        }
        block.end = first + word;
        (!block.instructions.is_empty()).then(|| Box::new(block))
    }
}

/// Returns true for instructions after which another than the next one may be executed, or which need to know where they
/// are.
fn ends_block(inst: &Inst) -> bool {
    match inst.body {
        Body::Scalar(_, row) => row.special && !matches!(row.control, Control::Wait | Control::Nothing),
        Body::ScalarMemory(row) => row.op == ScalarOp::Clock,
        _ => false,
    }
}

/// Returns true for instructions that change which registers memory is going to fill.
fn ends_section(inst: &Inst) -> bool {
    match inst.body {
        Body::Scalar(_, row) => row.control == Control::Wait,
        Body::Vector(..) | Body::Matrix(_) | Body::Wmma(_) | Body::Pair(_) => false,
        Body::ScalarMemory(_) | Body::Memory(..) | Body::Lds(_) => true,
    }
}

/// Counts an instruction.
fn count(inst: &Inst, counters: &mut Counters) {
    let counter = match inst.body {
        Body::Vector(..) => {
            counters.valu_quarter += u64::from(inst.rate == Rate::Quarter);
            counters.dot += u64::from(inst.rate == Rate::Dot);
            &mut counters.valu
        }
        Body::Matrix(_) | Body::Wmma(_) => {
            counters.matrix += 1;
            &mut counters.valu
        }
        Body::Pair(_) => &mut counters.valu,
        Body::Scalar(_, row) => match row.control {
            Control::None => &mut counters.salu,
            Control::Wait => &mut counters.wait,
            Control::Barrier => &mut counters.barrier,
            Control::Nothing | Control::Other => &mut counters.other,
            _ => &mut counters.branch,
        },
        Body::ScalarMemory(_) => &mut counters.smem,
        Body::Lds(_) => &mut counters.lds,
        Body::Memory(_, row) => match row.op {
            Op::Load { .. } | Op::LoadLds { .. } => &mut counters.vmem_load,
            Op::Atomic { .. } if inst.flags.glc => &mut counters.vmem_load,
            Op::Store { .. } | Op::Atomic { .. } => &mut counters.vmem_store,
            _ => return,
        },
    };
    *counter += 1;
}

/// The page of a cursor that was not used yet.
static NONE: Page = Page::new(Vec::new());

impl Text {
    /// Returns the text of some words.
    pub(crate) fn new(base: u64, words: Vec<u32>, isa: Isa) -> Text {
        let count = words.len();
        Text::of(base, Source::Words(words), count, isa)
    }

    /// Returns the text of a region of memory, read as it is executed.
    pub(crate) fn of_region(region: &Region, isa: Isa) -> Text {
        let words = usize::try_from(region.bytes / 4).unwrap_or(usize::MAX);
        Text::of(region.base, Source::Memory(region.downgrade()), words, isa)
    }

    fn of(base: u64, source: Source, words: usize, isa: Isa) -> Text {
        let pages = (0..words.div_ceil(PAGE)).map(|_| OnceLock::new()).collect();
        Text { base, source, words, pages, blocks: AtomicUsize::new(0), isa }
    }

    /// Returns the instructions in which it is written.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.words
    }

    /// Returns true if it is the text of this region.
    pub(crate) fn is_of(&self, region: &Region, isa: Isa) -> bool {
        self.isa == isa && matches!(&self.source, Source::Memory(source) if source.is(region))
    }

    /// Returns true if its region was freed.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.source, Source::Memory(source) if source.is_gone())
    }

    /// Returns the instruction that starts at a word.
    pub(crate) fn at(&self, word: usize) -> Option<Inst> {
        self.page(word / PAGE)?.decode(word % PAGE, self.isa)
    }

    /// Returns a word as it was when its page was read.
    pub(crate) fn word(&self, word: usize) -> Option<u32> {
        self.page(word / PAGE)?.words.get(word % PAGE).copied()
    }

    /// Returns a cursor at no page.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        // No text has so many words.
        Cursor { text: self, first: usize::MAX / 2, page: &NONE }
    }

    #[inline(never)]
    fn page(&self, number: usize) -> Option<&Page> {
        Some(self.pages.get(number)?.get_or_init(|| Box::new(Page::new(self.read(number * PAGE)))))
    }

    /// Reads the words of a page.
    fn read(&self, first: usize) -> Vec<u32> {
        let count = (self.words - first).min(PAGE + AHEAD);
        match &self.source {
            Source::Words(words) => words[first..first + count].to_vec(),
            Source::Memory(region) => {
                let mut words = vec![0; count];
                // Memory that is gone is not executed either.
                let Some(region) = region.upgrade() else { return Vec::new() };
                region.load_into(4 * first as u64, &mut words);
                words
            }
        }
    }
}

/// A page of a text, in which blocks are found fast.
pub(crate) struct Cursor<'a> {
    text: &'a Text,
    /// Its first word.
    first: usize,
    page: &'a Page,
}

impl<'a> Cursor<'a> {
    /// Returns the block that starts at a word.
    #[inline(always)]
    pub(crate) fn at(&mut self, word: usize) -> Option<&'a Block> {
        let mut offset = word.wrapping_sub(self.first);
        if offset >= PAGE {
            self.page = self.text.page(word / PAGE)?;
            offset = word % PAGE;
            self.first = word - offset;
        }
        match self.page.blocks[offset].get() {
            Some(known) => known.as_deref(),
            None => self.page.block(offset, self.first, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Target;
    use crate::memory::Memory;

    const NOP: u32 = 0xbf80_0000;
    const END: u32 = 0xbf81_0000;

    /// Returns the name of a block's first instruction.
    fn name(block: &Block, text: &Text) -> &'static str {
        block.full(0, text).map_or("", |full| full.inst.name)
    }

    /// Two words: `v_add_f32` with a literal.
    const LONG: [u32; 2] = [0x0200_02ff, 0x1234_5678];

    #[test]
    fn instructions_across_pages() {
        let mut words = vec![NOP; 2 * PAGE + 10];
        words[PAGE - 1..PAGE + 1].copy_from_slice(&LONG);
        words[2 * PAGE + 9] = LONG[0];
        let text = Text::new(0x100, words, Isa::wave64(Target::Gfx906));
        let long = text.at(PAGE - 1).expect("an instruction");
        assert_eq!((long.name, long.words, long.literal), ("v_add_f32", 2, LONG[1]));
        let mut cursor = text.cursor();
        for word in [0, 2 * PAGE, PAGE + 1, 2 * PAGE + 8, 1] {
            assert_eq!(cursor.at(word).map(|block| name(block, &text)), Some("s_nop"), "{word}");
        }
        assert!(cursor.at(2 * PAGE + 9).is_none(), "the literal is missing");
        assert!(cursor.at(2 * PAGE + 10).is_none() && cursor.at(3 * PAGE).is_none(), "behind the end");
        assert!(cursor.at(usize::MAX).is_none());
        assert_eq!(cursor.at(0).map(|block| name(block, &text)), Some("s_nop"), "the cursor still works");
        assert_eq!((text.word(2 * PAGE + 9), text.word(2 * PAGE + 10)), (Some(LONG[0]), None));
    }

    /// A large region costs little until it is executed, and then what is executed.
    #[test]
    fn pages_are_read_when_they_are_executed() {
        let memory = Memory::new(1 << 30);
        let base = memory.allocate(1 << 29).expect("memory");
        let (region, _) = memory.whole(base, 4).expect("it is there");
        let text = Text::of_region(&region, Isa::wave64(Target::Gfx900));
        assert_eq!((text.base, text.len()), (base, 1 << 27));
        let store =
            |word: u64, value: u32| memory.write(base + 4 * word, &value.to_le_bytes()).expect("inside");
        store(0, NOP);
        assert_eq!(text.at(0).map(|inst| inst.name), Some("s_nop"));
        let far = (1 << 27) - 1;
        store(far, END);
        assert_eq!(text.at(far as usize).map(|inst| inst.name), Some("s_endpgm"));
        // What was read stays: stores are seen by an invalidated cache only.
        store(0, END);
        store(1, END);
        assert_eq!(text.at(0).map(|inst| inst.name), Some("s_nop"));
        assert_ne!(text.at(1).map(|inst| inst.name), Some("s_endpgm"));
        assert_eq!(
            Text::of_region(&region, Isa::wave64(Target::Gfx900)).at(1).map(|inst| inst.name),
            Some("s_endpgm")
        );
        assert_eq!(text.pages.iter().filter(|page| page.get().is_some()).count(), 2);
    }

    #[test]
    fn the_same_address_is_not_the_same_region() {
        let memory = Memory::new(1 << 20);
        memory.allocate_at(0x10000, 0x1000).expect("memory");
        let region = |memory: &Memory| memory.whole(0x10000, 4).expect("it is there").0;
        let text = Text::of_region(&region(&memory), Isa::wave64(Target::Gfx906));
        assert!(text.is_of(&region(&memory), text.isa) && !text.is_gone());
        memory.free(0x10000).expect("it is there");
        assert!(text.is_gone());
        assert!(text.at(0).is_none());
        memory.allocate_at(0x10000, 0x1000).expect("memory");
        assert!(!text.is_of(&region(&memory), text.isa) && text.is_gone());
    }
}
