//! Words of doc comments and of identifiers.

use crate::project::rust_sources;
use proc_macro2::{Ident, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Words with which no doc comment begins: a function's begins with a verb ("Returns ..."), a boolean's with "True if",
/// another item's with the item itself.
const OPENINGS: &[&str] = &["What", "That", "Whether", "Who", "Which", "Of", "Such", "Those", "How"];

/// An identifier that is not used any more.
struct Retired {
    word: &'static str,
    /// Its replacements: a standard term, or a name for the thing itself.
    instead: &'static str,
}

const fn retired(word: &'static str, instead: &'static str) -> Retired {
    Retired { word, instead }
}

/// The identifiers, whole: "settle" is not in "settled".
const RETIRED: &[Retired] = &[
    // Verbs of persons for actions of programs.
    retired("asking", "wanted_rows: rows of logits"),
    retired("hear", "receive"),
    retired("heard", "received"),
    retired("tell", "report, describe"),
    retired("told", "reported"),
    retired("play", "emulate, run"),
    retired("goes_on", "can_chain, continues"),
    retired("settle", "wait_in_flight, wait until idle"),
    retired("under_way", "in_flight"),
    // Ambiguous: rotated or transposed.
    retired("turned", "rotated (RoPE), transposed"),
    // Ambiguous: next to, in addition to, the other operand.
    retired("beside", "next_to, additional, other"),
    retired("of_any", "any"),
    // Types named by a question or a metaphor instead of their contents.
    retired("How", "the kind that it distinguishes: Rounding, Search"),
    retired("Look", "Probe, Inspection"),
    retired("Mood", "Style"),
    retired("Trier", "Attempt"),
    retired("Way", "Route, Method"),
    retired("Kept", "Stored, Retained"),
    retired("Left", "Remaining"),
    retired("Watch", "Monitor, Progress"),
    retired("Turned", "Rotated"),
    retired("Part", "the part of what: RegisterBits, GgufSplit"),
    retired("Place", "Location, Offset"),
    retired("House", "ImportGraph"),
];

#[test]
fn doc_comments_begin_with_their_subject() {
    let mut found = Vec::new();
    for (path, text) in rust_sources() {
        for (number, line) in openings(&text) {
            if OPENINGS.contains(&first_word(line)) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} doc comments:\n{}", found.len(), found.join("\n"));
}

/// Returns the first line of each doc comment, with its index.
fn openings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().map(str::trim_start).enumerate().filter(move |(_, line)| {
        let before = std::mem::replace(&mut inside, line.starts_with("///") || line.starts_with("//!"));
        inside && !before
    })
}

fn first_word(comment: &str) -> &str {
    let text = comment[3..].trim_start();
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[test]
fn an_opening_is_found() {
    let text = "//! Heads.\n//! What follows.\n\n/// What it is.\nfn a() {}\n    /// Whether.\n/// Whatever.\n// Who.\n";
    let found: Vec<_> = openings(text).map(|(number, line)| (number, first_word(line))).collect();
    assert_eq!(found, [(0, "Heads"), (3, "What"), (5, "Whether")]);
}

#[test]
fn retired_identifiers_do_not_come_back() {
    let mut counts: BTreeMap<&str, BTreeMap<PathBuf, usize>> = BTreeMap::new();
    for (path, text) in rust_sources() {
        let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        identifiers(tokens, &mut |name| {
            if let Some(known) = RETIRED.iter().find(|retired| name == retired.word) {
                *counts.entry(known.word).or_default().entry(path.clone()).or_default() += 1;
            }
        });
    }
    let mut found = Vec::new();
    for Retired { word, instead } in RETIRED {
        if let Some(files) = counts.remove(word) {
            let files: Vec<String> =
                files.iter().map(|(path, n)| format!("{n} in {}", path.display())).collect();
            found.push(format!("`{word}` is retired, use {instead}: {}", files.join(", ")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Calls `each` with every identifier. Comments and strings have none.
fn identifiers(tokens: TokenStream, each: &mut impl FnMut(&Ident)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), each),
            TokenTree::Ident(name) => each(&name),
            _ => {}
        }
    }
}

#[test]
fn an_identifier_is_found() {
    let mut found = Vec::new();
    let tokens: TokenStream = "// Look\nfn f(a: Look) { m!(\"Look\", x::Look, Looks) }".parse().unwrap();
    identifiers(tokens, &mut |name| found.extend((name == "Look").then_some(())));
    assert_eq!(found.len(), 2);
}
