//! Instructions of matrix product kernels per weight (mat-vec) or per product of two values (tiles), counted
//! on the emulated processors without noise. COUNTS.md lists the results.

use crate::common;

use diptych::ggml::backend::{Backend, Bindings, PrepareOptions, Slice, Usage};
use diptych::ggml::encode::encode;
use diptych::ggml::plan::Plan;
use diptych::ggml::rng::Rng;
use diptych::ggml::{Graph, Source};
use diptych::{DType, Precision};
use std::path::Path;
use std::sync::Arc;

/// Drivers and cards. The first card of each driver supports dot products of bytes.
const CARDS: [&str; 4] =
    ["vulkan-virtual:vega20", "vulkan-virtual:vega10", "hip-virtual:gfx906", "hip-virtual:gfx900"];

/// Types in the document; the first [`FEW`] are measured in every test run.
const TYPES: [DType; 16] = [
    DType::Q8_0,
    DType::Q4_K,
    DType::Q6_K,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q5_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::F32,
    DType::F16,
    DType::BF16,
];
const FEW: usize = 3;

/// Elements per row of weights.
const K: usize = 4096;

/// A table of the document: the text before and after it, rows of the weights, numbers of columns, and
/// `each`: counted per product (tiles) rather than per weight.
struct Table {
    begin: &'static str,
    end: &'static str,
    m: usize,
    columns: &'static [usize],
    each: bool,
}

const TABLES: [Table; 2] = [
    Table { begin: "<!-- measured -->\n", end: "<!-- end -->\n", m: 14336, columns: &[1, 8], each: false },
    Table { begin: "<!-- tiles -->\n", end: "<!-- end of tiles -->\n", m: 4096, columns: &[128], each: true },
];

/// Lanes per wavefront.
const LANES: f64 = 64.0;

/// Instructions per lane for each weight or product.
#[derive(Clone, Copy, Debug)]
struct Counts {
    vector: f64,
    memory: f64,
}

/// Returns the sum of some counters over all kernels.
fn sum(backend: &dyn Backend, names: &[&str]) -> u64 {
    let kernels = backend.counts().expect("counters");
    let counters = kernels.iter().flat_map(|kernel| &kernel.counts);
    counters.filter(|(name, _)| names.contains(name)).map(|(_, n)| n).sum()
}

/// Counts a whole product: loop, rounding of activations, sums over lanes.
fn count(backend: &dyn Backend, dtype: DType, table: &Table, n: usize) -> Counts {
    let m = table.m;
    let mut rng = Rng::new(1);
    let row: Vec<f32> = (0..K).map(|_| rng.uniform(-1.0, 1.0)).collect();
    let mut g = Graph::new();
    let a = g.leaf("a", dtype, [K, m, 1, 1], Source::Weight).expect("a");
    let b = g.leaf("b", DType::F32, [K, n, 1, 1], Source::Input).expect("b");
    let d = g.mul_mat(a, b).expect("d");
    g.output(d).expect("an output");
    let plan = Plan::new(&g, backend.device().limits.alignment, Precision::Fast).expect("a plan");
    let weights = encode(dtype, K, &row).expect("weights").repeat(m);
    let buffer = backend.allocate(weights.len(), Usage::Weights).expect("memory");
    backend.upload(&buffer, 0, &weights).expect("upload");
    let mut bindings = Bindings::default();
    bindings.leaves.insert(a, Slice { buffer, offset: 0 });
    let mut program = backend.prepare(&g, &plan, &bindings, PrepareOptions::default()).expect("a program");
    let input: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
    program.write(b, &input.repeat(n)).expect("input");
    let looked = |names: &[&str]| sum(backend, names);
    let names: [&[&str]; 2] = [&["valu"], &["smem", "vmem_load", "vmem_store", "lds"]];
    let before = names.map(looked);
    program.run().expect("a run");
    let after = names.map(looked);
    let each =
        |i: usize| LANES * (after[i] - before[i]) as f64 / (K * m * if table.each { n } else { 1 }) as f64;
    Counts { vector: each(0), memory: each(1) }
}

/// Returns the compiler of a backend's kernels, or its driver.
fn compiler(backend: &dyn Backend) -> String {
    let versions = &backend.device().versions;
    let of = |name: &str| versions.iter().find(|(of, _)| of == name).map(|(_, version)| version.clone());
    of("kernel compiler").or_else(|| of("driver")).unwrap_or_default()
}

/// Returns the measured part of the document: the kernels' compilers, and a table with a column for each card
/// and number of columns.
fn measured(cards: &[(&str, Arc<dyn Backend>)], table: &Table) -> String {
    let mut text = String::from("Kernels made by:");
    for (name, backend) in cards {
        text += &format!(" {name} {};", compiler(backend.as_ref()));
    }
    text += "\n\n| type |";
    for (name, _) in cards {
        let name = name.rsplit(':').next().unwrap_or(name);
        table.columns.iter().for_each(|n| text += &format!(" {name}, n={n} |"));
    }
    text += &format!("\n| --- |{}\n", " --- |".repeat(cards.len() * table.columns.len()));
    for dtype in TYPES {
        text += &format!("| {dtype} |");
        for (_, backend) in cards {
            for &n in table.columns {
                let Counts { vector, memory } = count(backend.as_ref(), dtype, table, n);
                let digits = if table.each { 3 } else { 2 };
                text += &format!(" {vector:.digits$} + {memory:.digits$} |");
            }
        }
        text += "\n";
    }
    text
}

/// Returns the documented counts of a type, in the order of cards and columns.
fn listed(part: &str, dtype: DType) -> Vec<Counts> {
    let row =
        part.lines().find(|line| line.starts_with(&format!("| {dtype} |"))).expect("a row for each type");
    let cells = row.split('|').skip(2).filter_map(|cell| cell.split_once('+'));
    let number = |text: &str| text.trim().parse().expect("a number");
    cells.map(|(vector, memory)| Counts { vector: number(vector), memory: number(memory) }).collect()
}

/// No kernel needs more instructions than COUNTS.md documents, if it was compiled by the compiler named
/// there. `DIPTYCH_WRITE_COUNTS=1` measures all types and rewrites the document.
#[test]
fn kernels_take_no_more_than_documented() {
    let cards: Vec<_> = CARDS.into_iter().filter_map(|name| Some((name, common::backend(name)?))).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COUNTS.md");
    let text = std::fs::read_to_string(&path).expect("COUNTS.md");
    if std::env::var_os("DIPTYCH_WRITE_COUNTS").is_some() {
        assert_eq!(cards.len(), CARDS.len(), "the document has all cards");
        let written = TABLES.iter().fold(text, |text, table| {
            let [before, _, after] = parts(&text, table);
            [before, table.begin, &measured(&cards, table), table.end, after].concat()
        });
        std::fs::write(&path, written).expect("COUNTS.md is written");
        return;
    }
    let wrong: Vec<String> =
        TABLES.iter().flat_map(|table| excess(&cards, parts(&text, table)[1], table)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Splits the document into the text before a table, the table, and the text after it.
fn parts<'a>(text: &'a str, table: &Table) -> [&'a str; 3] {
    let (before, rest) = text.split_once(table.begin).expect("where the measured part begins");
    let (documented, after) = rest.split_once(table.end).expect("where it ends");
    [before, documented, after]
}

/// Returns the kernels that need more instructions than the table documents.
fn excess(cards: &[(&str, Arc<dyn Backend>)], documented: &str, table: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, backend) in cards {
        if !documented.contains(&format!("{name} {};", compiler(backend.as_ref()))) {
            eprintln!("skipped: COUNTS.md is of another compiler for {name}");
            continue;
        }
        let place = CARDS.iter().position(|card| card == name).expect("one of the cards");
        for dtype in &TYPES[..FEW] {
            let listed = listed(documented, *dtype);
            for (i, &n) in table.columns.iter().enumerate() {
                let (now, most) =
                    (count(backend.as_ref(), *dtype, table, n), listed[place * table.columns.len() + i]);
                // The document has two decimals, or three.
                let more = if table.each { 0.001 } else { 0.01 };
                if now.vector > most.vector + more || now.memory > most.memory + more {
                    wrong.push(format!("{name}, {dtype}, n={n}: {now:?}, documented {most:?}"));
                }
            }
        }
    }
    wrong
}
