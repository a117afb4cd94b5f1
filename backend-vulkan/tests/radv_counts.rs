//! Instruction counts of the loops over k of matrix products, in the listings of RADV's compiler. COUNTS.md
//! has tables of them.
//!
//! A normal run counts one type on one family. `DIPTYCH_WRITE_COUNTS=1` counts everything in the document and
//! rewrites it; `DIPTYCH_LOOPS=1` prints a line for each pipeline of matrix products of each family.

use crate::radv;

use backend_vulkan::{PipelineSpec, audit};
use std::collections::BTreeMap;
use std::path::Path;

const FAMILIES: [&str; 5] = ["vega20", "vega10", "navi31", "gfx1151", "gfx1201"];

/// Types in the document; a normal run counts the first one on the first family.
const TYPES: [&str; 6] = ["q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "f16"];

/// Tables of the document: the forms of a product, and the heading.
const TABLES: [(&[&str], &str); 4] = [
    (&["n=1", "n=8"], "Mat-vec of 1 and 8 columns: vector instructions of a lane for each weight."),
    (&["MUL_MAT"], "Tiles of MUL_MAT in `fast`: products of two numbers for each cycle of a SIMD."),
    (&["MUL_MAT_ID"], "The same of MUL_MAT_ID."),
    (&["exact"], "The same of MUL_MAT in `exact`."),
];

const BEGIN: &str = "<!-- loops -->\n";
const END: &str = "<!-- end of loops -->\n";

const CHILD: &str = "DIPTYCH_LOOPS_CHILD";

/// Table cells by form of product and type.
type Cells = BTreeMap<(String, String), String>;

fn one_type(pipeline: &PipelineSpec) -> bool {
    is_product(pipeline) && pipeline.variant.starts_with("q8_0_")
}

fn documented_types(pipeline: &PipelineSpec) -> bool {
    is_product(pipeline) && TYPES.contains(&split(pipeline).0)
}

/// Returns true for matrix-vector products of one matrix without fused operations, and for tiles.
fn is_product(pipeline: &PipelineSpec) -> bool {
    match pipeline.shader {
        "mul_mat_vec" => pipeline.specialization.ends_with(&[0, 1]),
        shader => ["mul_mat_tile", "mul_mat_id_tile"].contains(&shader),
    }
}

/// Splits a variant into type and form.
fn split(pipeline: &PipelineSpec) -> (&str, &str) {
    pipeline.variant.rsplit_once('_').unwrap_or((pipeline.variant, ""))
}

/// Runs in a child process only: prints the driver, then lines of form, type and cell, or a line for each
/// pipeline.
#[test]
fn child() {
    let Ok(which) = std::env::var(CHILD) else { return };
    let wanted = match which.as_str() {
        "one" => one_type,
        "table" => documented_types,
        _ => is_product,
    };
    let loops =
        audit::count_loops(radv::options(), wanted).expect("RADV lists what it compiles for a null device");
    assert!(!loops.rows.is_empty(), "no pipeline is listed");
    if which == "all" {
        println!("{}", audit::table(&loops.rows));
        // Types missing from the document may be among them.
        println!("loops that are not understood: {:?}", loops.others);
        return;
    }
    assert!(loops.others.is_empty(), "loops that are not understood: {:#?}", loops.others);
    // The test harness has already begun a line.
    println!("\ndriver\t{}", loops.driver);
    for ((form, dtype), cell) in cells(&loops.rows) {
        println!("cell\t{form}\t{dtype}\t{cell}");
    }
}

/// Returns the cells of the forms that devices use for large aligned products: bytes or matrices if
/// available, and the largest tile.
fn cells(rows: &[audit::LoopRow]) -> Cells {
    let mut best: BTreeMap<(String, String), ((bool, u32), String)> = BTreeMap::new();
    for row in rows {
        let (dtype, variant) = split(&row.pipeline);
        let mut insert = |form: &str, size: u32, cell: String| {
            let rank = (!["lds", "subgroup", "tile32"].contains(&variant), size);
            let known = best.entry((form.into(), dtype.into())).or_insert_with(|| (rank, cell.clone()));
            if rank > known.0 {
                *known = (rank, cell);
            }
        };
        let [products, slow] = row.products_per_cycle();
        let tile =
            if slow < products { format!("{products:.1} ({slow:.1})") } else { format!("{products:.1}") };
        match (row.pipeline.shader, row.pipeline.specialization.as_slice()) {
            ("mul_mat_vec", &[_, rows, n, 1, 1, ..]) if rows > 1 => {
                insert(&format!("n={n}"), rows, format!("{:.2}", row.vector_per_weight()));
            }
            ("mul_mat_tile", &[_, bm, bn, _, _, _, _, 1, ..]) => {
                insert("MUL_MAT", bm * bn, tile.clone());
                if variant == "tile32" {
                    insert("exact", bm * bn, tile);
                }
            }
            ("mul_mat_id_tile", &[_, bm, bn, _, _, _, _, 1, ..]) => insert("MUL_MAT_ID", bm * bn, tile),
            _ => {}
        }
    }
    best.into_iter().map(|(key, (_, cell))| (key, cell)).collect()
}

/// Returns the driver and the cells of a family.
fn count(manifest: &Path, family: &str, which: &str) -> (String, Cells) {
    let output = radv::child(manifest, family, (CHILD, which));
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{family}: {}\n{text}\n{error}", output.status);
    if which == "all" {
        println!("== {family}\n{text}");
    }
    let (mut driver, mut cells) = (String::new(), Cells::new());
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["driver", name] => driver = name.to_owned(),
            ["cell", form, dtype, cell] => {
                cells.insert((form.into(), dtype.into()), cell.to_owned());
            }
            _ => {}
        }
    }
    (driver, cells)
}

/// Returns the generated part of the document.
fn document(manifest: &Path) -> String {
    let counted = FAMILIES.map(|family| (family, count(manifest, family, "table")));
    let mut text = format!("Listings of: {}\n", counted[0].1.0);
    for (forms, head) in TABLES {
        text += &format!("\n{head}\n\n| type |");
        for (family, _) in &counted {
            for form in forms {
                text +=
                    &if forms.len() > 1 { format!(" {family}, {form} |") } else { format!(" {family} |") };
            }
        }
        text += &format!("\n| --- |{}\n", " --- |".repeat(FAMILIES.len() * forms.len()));
        for dtype in TYPES {
            text += &format!("| {} |", dtype.to_uppercase());
            for (_, (_, cells)) in &counted {
                for form in forms {
                    let cell = cells.get(&(form.to_string(), dtype.to_owned()));
                    text += &format!(" {} |", cell.map_or("-", |cell| cell));
                }
            }
            text += "\n";
        }
    }
    text
}

/// Returns the documented values of the first type on the first family, form by form.
fn documented(part: &str) -> Vec<(&'static str, f64)> {
    let begin = format!("| {} |", TYPES[0].to_uppercase());
    let rows: Vec<&str> = part.lines().filter_map(|line| line.strip_prefix(&begin)).collect();
    assert_eq!(rows.len(), TABLES.len(), "a row for each table");
    let forms = rows.iter().zip(TABLES).flat_map(|(row, (forms, _))| forms.iter().zip(row.split('|')));
    forms.map(|(form, cell)| (*form, number(cell))).collect()
}

/// Returns the first number of a cell.
fn number(cell: &str) -> f64 {
    cell.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Checks that no loop needs more instructions than COUNTS.md documents, if the compiler is the one named
/// there.
#[test]
fn loops_are_those_of_the_document() {
    let Some(manifest) = radv::manifest() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../COUNTS.md");
    let text = std::fs::read_to_string(&path).expect("COUNTS.md");
    let (before, rest) = text.split_once(BEGIN).expect("where the counted part begins");
    let (part, after) = rest.split_once(END).expect("where it ends");
    if std::env::var_os("DIPTYCH_LOOPS").is_some() {
        FAMILIES.iter().for_each(|family| drop(count(&manifest, family, "all")));
    }
    if std::env::var_os("DIPTYCH_WRITE_COUNTS").is_some() {
        let written = [before, BEGIN, &document(&manifest), END, after].concat();
        std::fs::write(&path, written).expect("COUNTS.md is written");
        return;
    }
    let (driver, cells) = count(&manifest, FAMILIES[0], "one");
    if !part.contains(&format!("Listings of: {driver}\n")) {
        eprintln!("skipped: COUNTS.md is of another compiler than {driver}");
        return;
    }
    for (form, expected) in documented(part) {
        let cell = &cells[&(form.to_owned(), TYPES[0].to_owned())];
        let now = number(cell);
        // Instructions may be fewer, and products per cycle more.
        let worse = if form.starts_with("n=") { now > expected + 0.01 } else { now < expected - 0.1 };
        assert!(!worse, "{form}: {now}, documented {expected}");
    }
}
