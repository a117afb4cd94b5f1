//! Instruction counts of the loops over k of matrix products, taken from listings.
//!
//! A loop is identified by its work: the products of a step follow from a pipeline's specialisation. It is an
//! innermost loop, or, where a step is itself a loop, the loop around it, with as many iterations of the
//! inner loop as a step needs. Of the paths through the loop the one with most products is counted, then one
//! that loads from memory, then the cheapest. This selects steps that do not cross the end of a row, and no
//! step that is written a second time. Branches that only some invocations take count as taken.

use super::Listing;
use super::cost::{Class, cost};
use super::listing::{Block, blocks, holds, loops};
use crate::arch::ArchClass;
use crate::op;
use crate::pipeline::PipelineSpec;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Work of a wavefront in a step of a loop over k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Products of two values.
    pub(super) products: u32,
    /// Weights loaded.
    pub(super) weights: u32,
}

impl Work {
    /// Returns the work of a pipeline with `lanes` invocations per subgroup; `None` if it is no matrix
    /// product.
    pub(super) fn of(pipeline: &PipelineSpec, lanes: u32) -> Option<Work> {
        match (pipeline.shader, pipeline.specialization.as_slice()) {
            ("mul_mat_tile" | "mul_mat_id_tile", &[workgroup, bm, bn, bk, _, _, _, _, slices, ..]) => {
                let waves = workgroup.checked_div(lanes).filter(|&waves| waves > 0)?;
                let of = |n: u32| n * bk * slices / waves;
                Some(Work { products: of(bm * bn), weights: of(bm) })
            }
            ("mul_mat_vec", &[_, rows, columns, ..]) => {
                let weights = rows * op::piece(pipeline)? * lanes;
                Some(Work { products: weights * columns, weights })
            }
            _ => None,
        }
    }
}

/// Instruction counts of a wavefront.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) instructions: [u32; Class::ALL.len()],
    pub(super) cycles: u32,
    pub(super) slow: u32,
    pub(super) products: u32,
}

impl Tally {
    fn add(&mut self, other: &Tally, times: u32) {
        for (to, from) in self.instructions.iter_mut().zip(other.instructions) {
            *to += from * times;
        }
        self.cycles += other.cycles * times;
        self.slow += other.slow * times;
        self.products += other.products * times;
    }

    fn of(arch: ArchClass, lanes: u32, block: &Block<'_>) -> Tally {
        let mut tally = Tally::default();
        for &instruction in &block.code {
            let cost = cost(arch, lanes, instruction);
            tally.instructions[cost.class as usize] += 1;
            tally.cycles += cost.cycles;
            tally.slow += cost.slow;
            tally.products += cost.products;
        }
        tally
    }

    fn loads(&self) -> bool {
        self.instructions[Class::Memory as usize] > 0
    }
}

/// The loop over k of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopRow {
    /// The pipeline.
    pub pipeline: PipelineSpec,
    /// Invocations of a subgroup.
    pub lanes: u32,
    work: Work,
    tally: Tally,
}

impl LoopRow {
    /// Returns the instructions of a class that a wavefront executes in a step.
    pub fn instructions(&self, class: Class) -> u32 {
        self.tally.instructions[class as usize]
    }

    /// Returns the products per cycle of vector issue on a SIMD, without and with slow conversions.
    pub fn products_per_cycle(&self) -> [f64; 2] {
        let Tally { cycles, slow, .. } = self.tally;
        [cycles, cycles + slow].map(|cycles| f64::from(self.work.products) / f64::from(cycles.max(1)))
    }

    /// Returns the vector instructions of an invocation per weight.
    pub fn vector_per_weight(&self) -> f64 {
        let vector: u32 = Class::ALL.iter().filter(|c| c.is_vector()).map(|&c| self.instructions(c)).sum();
        f64::from(vector * self.lanes) / f64::from(self.work.weights)
    }
}

/// Returns the loop over k of a listing, if there is one and it can be analysed.
pub(super) fn row(arch: ArchClass, listing: &Listing) -> Option<LoopRow> {
    let work = Work::of(&listing.pipeline, listing.lanes)?;
    let blocks = blocks(&listing.text);
    let tallies: Vec<Tally> = blocks.iter().map(|block| Tally::of(arch, listing.lanes, block)).collect();
    let tally = step(&blocks, &tallies, work.products)?;
    Some(LoopRow { pipeline: listing.pipeline.clone(), lanes: listing.lanes, work, tally })
}

/// Returns the cost of a step with the given number of products.
fn step(blocks: &[Block<'_>], tallies: &[Tally], products: u32) -> Option<Tally> {
    let loops = loops(blocks);
    let inner = loops.iter().filter(|one| !loops.iter().any(|other| holds(one, other)));
    let way = |range: &RangeInclusive<usize>, within: Option<(&RangeInclusive<usize>, &Tally)>| {
        cheapest(blocks, tallies, range, within)
    };
    let (range, tally) = inner
        .filter_map(|range| Some((range, way(range, None)?)))
        .filter(|(_, tally)| tally.products > 0)
        .max_by_key(|(_, tally)| tally.products)?;
    if tally.products >= products {
        return Some(tally);
    }
    // Some of the counted products are factors, so a step has 2, 4, 8 ... iterations.
    let turns = products.div_ceil(tally.products).next_power_of_two();
    let mut all = Tally::default();
    all.add(&tally, turns);
    let around = loops.iter().filter(|other| holds(other, range)).min_by_key(|r| r.end() - r.start())?;
    way(around, Some((range, &all))).filter(|tally| tally.products >= products)
}

/// Returns the cheapest path through a loop among those with most products that also load. `within`: an inner
/// loop and its cost.
fn cheapest(
    blocks: &[Block<'_>],
    tallies: &[Tally],
    range: &RangeInclusive<usize>,
    within: Option<(&RangeInclusive<usize>, &Tally)>,
) -> Option<Tally> {
    // The cheapest path to each block, by its products and whether it has loaded.
    let mut ways: HashMap<usize, BTreeMap<(u32, bool), Tally>> = HashMap::new();
    ways.entry(*range.start()).or_default().insert((0, false), Tally::default());
    let mut whole: BTreeMap<(u32, bool), Tally> = BTreeMap::new();
    for at in range.clone() {
        let inner = within.filter(|(inner, _)| *inner.start() == at);
        let (tally, last) = inner.map_or((&tallies[at], at), |(inner, tally)| (tally, *inner.end()));
        let Some(here) = ways.remove(&at) else { continue };
        let after: Vec<Tally> = here
            .into_values()
            .map(|mut way| {
                way.add(tally, 1);
                way
            })
            .collect();
        for &to in blocks[at..=last].iter().flat_map(|block| &block.next) {
            let into = match () {
                _ if to == *range.start() => &mut whole,
                _ if to > last && range.contains(&to) => ways.entry(to).or_default(),
                _ => continue,
            };
            for way in &after {
                let known = into.entry((way.products, way.loads())).or_insert_with(|| way.clone());
                if way.cycles < known.cycles {
                    *known = way.clone();
                }
            }
        }
    }
    whole.pop_last().map(|(_, tally)| tally)
}

/// Formats a line for each loop: instructions of a wavefront in a step by class, products per cycle,
/// instructions per weight.
pub fn table(rows: &[LoopRow]) -> String {
    let mut text = format!("{:58}{:>6}", "pipeline", "size");
    Class::ALL.iter().for_each(|class| text += &format!("{:>11}", format!("{class:?}").to_lowercase()));
    let _ = writeln!(text, "{:>10}{:>10}{:>10}", "products", "slow", "weight");
    for row in rows {
        let _ = write!(text, "{:58}{:>6}", row.pipeline.to_string(), row.lanes);
        Class::ALL.iter().for_each(|&class| text += &format!("{:>11}", row.instructions(class)));
        let [products, slow] = row.products_per_cycle();
        let _ = writeln!(text, "{products:>10.1}{slow:>10.1}{:>10.2}", row.vector_per_weight());
    }
    text
}
