//! Instructions of kernels: mat-vec per weight, tiles and attention per product of two values, counted on the emulated
//! processors without noise. COUNTS.md lists the results.

mod peer;
mod work;

use backend_hip::HipOptions;
use backend_hip::options::MatrixUnits;
use backend_vulkan::{Matrices, VulkanBackend, VulkanOptions};
use diptych::ggml::backend::Backend;
use diptych::{DType, Error};
use std::path::Path;
use std::sync::Arc;
use work::{Counts, Work};

/// Drivers and cards of GCN.
const GCN: &[&str] =
    &["vulkan-virtual:vega20", "vulkan-virtual:vega10", "hip-virtual:gfx906", "hip-virtual:gfx900"];

/// Drivers and cards of RDNA3 and CDNA2.
const NEWER: &[&str] =
    &["vulkan-virtual:navi31", "hip-virtual:gfx1100", "hip-virtual:gfx1151", "hip-virtual:gfx90a"];

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

/// Another engine's counts: the names of its columns, and the cells of rows by their names.
struct Peer {
    columns: &'static [&'static str],
    rows: &'static [(&'static str, &'static [&'static str])],
}

const NO_PEER: Peer = Peer { columns: &[], rows: &[] };

/// Rows of a table.
enum Rows {
    /// The types, with some numbers of columns for each card. `each`: counted per product (tiles) rather than per weight.
    Types {
        m: usize,
        columns: &'static [usize],
        each: bool,
    },
    /// The same for rows of any length, of one type: `k` and `m`.
    Lengths {
        dtype: DType,
        sizes: &'static [[usize; 2]],
    },
    Attention,
    /// The part of it in which many tokens are computed at once.
    Prompts,
}

/// A table of the document.
struct Table {
    /// Its name in the document's comments.
    name: &'static str,
    cards: &'static [&'static str],
    /// True if matrix units are on.
    units: bool,
    rows: Rows,
    /// Rows that every test run counts, the first ones.
    few: usize,
    /// Counts of another engine's kernels, for rows that it was measured for.
    peer: Peer,
}

const MAT_VEC: Rows = Rows::Types { m: 14336, columns: &[1, 8], each: false };
const TILES: Rows = Rows::Types { m: 4096, columns: &[128], each: true };

/// Output rows of qwen2.5-0.5b's projections and feed-forward network, and longer ones.
const LENGTHS: Rows =
    Rows::Lengths { dtype: DType::Q4_0, sizes: &[[896, 896], [896, 4864], [4864, 896], [2048, 8192]] };

const TABLES: [Table; 9] = [
    Table { name: "mat-vec", cards: GCN, units: false, rows: MAT_VEC, few: 2, peer: peer::MAT_VEC },
    Table { name: "row lengths", cards: GCN, units: false, rows: LENGTHS, few: 2, peer: peer::LENGTHS },
    Table { name: "tiles", cards: GCN, units: false, rows: TILES, few: 1, peer: peer::TILES },
    Table {
        name: "attention",
        cards: GCN,
        units: false,
        rows: Rows::Attention,
        few: 1,
        peer: peer::ATTENTION,
    },
    Table {
        name: "mat-vec of RDNA3 and CDNA2",
        cards: NEWER,
        units: false,
        rows: MAT_VEC,
        few: 1,
        peer: NO_PEER,
    },
    Table {
        name: "tiles of RDNA3 and CDNA2",
        cards: NEWER,
        units: false,
        rows: TILES,
        few: 1,
        peer: NO_PEER,
    },
    Table {
        name: "attention of RDNA3 and CDNA2",
        cards: NEWER,
        units: false,
        rows: Rows::Attention,
        few: 1,
        peer: NO_PEER,
    },
    Table { name: "tiles of matrix units", cards: NEWER, units: true, rows: TILES, few: 1, peer: NO_PEER },
    Table {
        name: "attention of matrix units",
        cards: NEWER,
        units: true,
        rows: Rows::Prompts,
        few: 1,
        peer: NO_PEER,
    },
];

impl Rows {
    /// Returns the headings of a card's columns.
    fn columns(&self) -> Vec<String> {
        match self {
            Rows::Types { columns, .. } => columns.iter().map(|n| format!(", n={n}")).collect(),
            Rows::Lengths { .. } | Rows::Attention | Rows::Prompts => vec![String::new()],
        }
    }

    /// Returns the rows: a name, and the work of each of a card's columns.
    fn list(&self) -> Vec<(String, Vec<Work>)> {
        let attention = |name: &str, [tokens, positions, heads, heads_kv]: [usize; 4], causal| {
            (name.to_string(), vec![Work::Attention { tokens, positions, heads, heads_kv, causal }])
        };
        match *self {
            Rows::Types { m, columns, each } => {
                let of =
                    |dtype| columns.iter().map(|&n| Work::Product { dtype, k: 4096, m, n, each }).collect();
                TYPES.map(|dtype| (dtype.to_string(), of(dtype))).into()
            }
            Rows::Lengths { dtype, sizes } => {
                let of = |&[k, m]: &[usize; 2]| {
                    (format!("{m} rows of {k}"), vec![Work::Product { dtype, k, m, n: 1, each: false }])
                };
                sizes.iter().map(of).collect()
            }
            Rows::Attention => {
                let one = |heads_kv| [1, 4096, 8, heads_kv];
                let mut rows = vec![
                    attention("one token, 4096 positions, 8 heads of 2", one(2), true),
                    attention("one token, 4096 positions, 8 heads of 8", one(8), true),
                ];
                rows.extend(Rows::Prompts.list());
                rows
            }
            Rows::Prompts => vec![
                attention("512 tokens, causal, 8 heads of 2", [512, 512, 8, 2], true),
                attention("512 tokens, nothing hidden, 8 heads of 2", [512, 512, 8, 2], false),
                attention("1024 tokens, causal, 4 heads of 1", [1024, 1024, 4, 1], true),
            ],
        }
    }

    /// Digits behind the point.
    fn digits(&self) -> usize {
        if matches!(self, Rows::Types { each: false, .. } | Rows::Lengths { .. }) { 2 } else { 3 }
    }

    fn cell(&self, counts: Counts) -> String {
        let (digits, Counts { vector, memory, scalar, matrix }) = (self.digits(), counts);
        let matrix = if matrix > 0.0 { format!(" ({matrix:.4})") } else { String::new() };
        format!(" {vector:.digits$} + {memory:.digits$} + {scalar:.digits$}{matrix} |")
    }
}

/// Returns the compiler of a backend's kernels, or its driver.
fn compiler(backend: &dyn Backend) -> String {
    let versions = &backend.device().versions;
    let of = |name: &str| versions.iter().find(|(of, _)| of == name).map(|(_, version)| version.clone());
    of("kernel compiler").or_else(|| of("driver")).unwrap_or_default()
}

type Card = (&'static str, Arc<dyn Backend>);

/// Opens a card with matrix units on or off.
fn open(name: &str, units: bool) -> diptych::Result<Arc<dyn Backend>> {
    Ok(match name.strip_prefix("hip-virtual:") {
        Some(target) => {
            let options = HipOptions::default();
            let matrix_units = if units { MatrixUnits::On } else { options.matrix_units };
            Arc::new(backend_hip::virtual_gpu::open(target, HipOptions { matrix_units, ..options })?)
        }
        None => {
            let options = VulkanOptions::for_name(name)?;
            let matrices = if units { Some(Matrices::Units) } else { options.matrices };
            Arc::new(VulkanBackend::open(VulkanOptions { matrices, ..options })?)
        }
    })
}

/// Returns the cards that can be opened here.
fn open_all(names: &[&'static str], units: bool) -> Vec<Card> {
    let one = |name: &&'static str| match open(name, units) {
        Ok(backend) => Some((*name, backend)),
        Err(Error::Unavailable { reason, .. }) => {
            eprintln!("skipped: {name} is not available: {reason}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    };
    names.iter().filter_map(one).collect()
}

/// Returns a table: the kernels' compilers, and the counts.
fn measured(cards: &[Card], table: &Table) -> String {
    let mut text = String::from("Kernels made by:");
    for (name, backend) in cards {
        text += &format!(" {name} {};", compiler(backend.as_ref()));
    }
    text += "\n\n| |";
    let columns = table.rows.columns();
    for (name, _) in cards {
        let name = name.rsplit(':').next().unwrap_or(name);
        columns.iter().for_each(|column| text += &format!(" {name}{column} |"));
    }
    table.peer.columns.iter().for_each(|column| text += &format!(" {column} |"));
    let cells = cards.len() * columns.len() + table.peer.columns.len();
    text += &format!("\n| --- |{}\n", " --- |".repeat(cells));
    for (name, work) in table.rows.list() {
        text += &format!("| {name} |");
        for (_, backend) in cards {
            work.iter().for_each(|work| text += &table.rows.cell(work.count(backend.as_ref())));
        }
        let known = table.peer.rows.iter().find(|(row, _)| *row == name).map_or(&[][..], |(_, cells)| cells);
        for i in 0..table.peer.columns.len() {
            text += &format!(" {} |", known.get(i).unwrap_or(&""));
        }
        text += "\n";
    }
    text
}

/// Returns the documented counts of a row, in the order of cards and columns.
fn listed(part: &str, name: &str) -> Vec<[f64; 3]> {
    let row = part.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("a row");
    let number = |text: &str| text.split_whitespace().next().and_then(|n| n.parse().ok());
    let numbers = |cell: &str| cell.split('+').filter_map(number).collect::<Vec<f64>>().try_into().ok();
    row.split('|').skip(2).filter_map(numbers).collect()
}

/// No kernel needs more instructions than COUNTS.md documents, if it was compiled by the compiler named
/// there. `DIPTYCH_WRITE_COUNTS=1` measures all rows and rewrites the document, another value the tables whose names have it.
#[test]
fn kernels_take_no_more_than_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COUNTS.md");
    let mut text = std::fs::read_to_string(&path).expect("COUNTS.md");
    let writes = std::env::var("DIPTYCH_WRITE_COUNTS").ok();
    let written = |table: &Table, part: &str| part == "1" || table.name.contains(part);
    let mut wrong = Vec::new();
    for (names, units) in [(GCN, false), (NEWER, false), (NEWER, true)] {
        let cards = open_all(names, units);
        for table in TABLES.iter().filter(|table| table.cards == names && table.units == units) {
            let [before, part, after] = parts(&text, table);
            match &writes {
                Some(which) if written(table, which) => {
                    assert_eq!(cards.len(), names.len(), "the document has all cards");
                    text = [before, &measured(&cards, table), after].concat();
                }
                Some(_) => {}
                None => wrong.extend(excess(&cards, part, table)),
            }
        }
    }
    if writes.is_some() {
        std::fs::write(&path, text).expect("COUNTS.md is written");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Splits the document into the text before a table, the table, and the text after it.
fn parts<'a>(text: &'a str, table: &Table) -> [&'a str; 3] {
    let (begin, end) = (format!("<!-- {} -->\n", table.name), format!("<!-- end of {} -->\n", table.name));
    let at = text.find(&begin).map(|at| at + begin.len()).expect("where a table begins");
    let to = at + text[at..].find(&end).expect("where it ends");
    [&text[..at], &text[at..to], &text[to..]]
}

/// Returns the kernels that need more instructions than the table documents.
fn excess(cards: &[Card], documented: &str, table: &Table) -> Vec<String> {
    let mut wrong = Vec::new();
    let columns = table.rows.columns();
    // The last digit is rounded.
    let more = 0.1f64.powi(table.rows.digits() as i32);
    for (name, backend) in cards {
        if !documented.contains(&format!("{name} {};", compiler(backend.as_ref()))) {
            eprintln!("skipped: COUNTS.md is of another compiler for {name}");
            continue;
        }
        let place = columns.len() * table.cards.iter().position(|card| card == name).expect("a card");
        for (row, work) in &table.rows.list()[..table.few] {
            let listed = listed(documented, row);
            for (i, work) in work.iter().enumerate() {
                let (now, most) = (work.count(backend.as_ref()), listed[place + i]);
                if [now.vector, now.memory, now.scalar].iter().zip(most).any(|(now, most)| *now > most + more)
                {
                    wrong.push(format!("{name}, {row}{}: {now:?}, documented {most:?}", columns[i]));
                }
            }
        }
    }
    wrong
}
