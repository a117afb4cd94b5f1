//! Parsing of machine code as RADV prints it, and its loops.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Instructions that are executed one after the other.
#[derive(Debug, Default)]
pub(super) struct Block<'a> {
    /// Instructions in the order of the listing; paired instructions are neighbours.
    pub(super) code: Vec<Instruction<'a>>,
    /// Indices of the blocks that may follow.
    pub(super) next: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction<'a> {
    pub(super) name: &'a str,
    pub(super) operands: &'a str,
    /// True if it is issued together with the previous instruction.
    pub(super) joined: bool,
}

/// Parses the blocks of a listing, in order. A branch taken only when no invocation is active
/// (`s_cbranch_execz`) counts as not taken.
///
/// Mesa prints assembly where its LLVM supports the processor (`\tv_add_u32_e32 v1, s2, v3 ; 68020602`),
/// otherwise the final form of its own compiler (` v1: %7:v[1] = v_add_u32 %5:s[2], %6:v[3]`).
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut labels, mut jumps) = (vec![Block::default()], HashMap::new(), Vec::new());
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default().trim();
        let last = blocks.len() - 1;
        if let Some(label) = label(line) {
            blocks[last].next.push(last + 1);
            labels.insert(label, last + 1);
            blocks.push(Block::default());
            continue;
        }
        let parts = line.split(" :: ").map(|part| part.rsplit_once(" = ").map_or(part, |(_, value)| value));
        let mut words = line.split_whitespace();
        blocks[last].code.extend(parts.enumerate().filter_map(|(i, part)| {
            let part = part.trim();
            let (name, operands) = part.split_once(' ').unwrap_or((part, ""));
            name.contains('_').then_some(Instruction { name, operands, joined: i > 0 })
        }));
        let (name, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let conditional = name.starts_with("s_cbranch");
        if !conditional && name != "s_branch" && name != "s_endpgm" {
            continue;
        }
        if name != "s_endpgm" && name != "s_cbranch_execz" {
            jumps.push((last, target.trim_start_matches("block:")));
        }
        if conditional {
            blocks[last].next.push(last + 1);
        }
        blocks.push(Block::default());
    }
    for (from, target) in jumps {
        blocks[from].next.extend(labels.get(target));
    }
    let end = blocks.len();
    blocks.iter_mut().for_each(|block| block.next.retain(|&to| to < end));
    blocks
}

/// Returns the name of a block: "BB12:" or "BB12".
fn label(line: &str) -> Option<&str> {
    let name = line.strip_suffix(':').unwrap_or(line);
    name.strip_prefix("BB").filter(|number| number.parse::<u32>().is_ok()).map(|_| name)
}

/// Returns the loops, each from its first block to the last one that branches back to it.
pub(super) fn loops(blocks: &[Block<'_>]) -> Vec<RangeInclusive<usize>> {
    let mut ends: HashMap<usize, usize> = HashMap::new();
    for (from, block) in blocks.iter().enumerate() {
        for &to in block.next.iter().filter(|&&to| to <= from) {
            let end = ends.entry(to).or_insert(from);
            *end = from.max(*end);
        }
    }
    let mut all: Vec<_> = ends.into_iter().map(|(first, last)| first..=last).collect();
    all.sort_by_key(|range| (*range.start(), *range.end()));
    all
}

/// Returns true if `outer` contains `inner` and the two differ.
pub(super) fn holds(outer: &RangeInclusive<usize>, inner: &RangeInclusive<usize>) -> bool {
    outer != inner && outer.contains(inner.start()) && outer.contains(inner.end())
}
