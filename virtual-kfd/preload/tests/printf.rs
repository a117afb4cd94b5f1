//! Kernels that write to standard output: the card raises interrupts, and a thread of the runtime answers.

use crate::roots::{Root, compiled, finish, roots, text};
use std::collections::BTreeMap;

/// Work-items of a group of which all print, and queues beside the first.
///
/// Version 5.2.3 of Debian compiles `printf` for at most 33 work-items of a wavefront: the function of its library that
/// counts the upper half of them is empty. And when a second queue has printed, nobody answers the first any more.
fn sizes(version: &str) -> (u32, u32) {
    match version {
        "5.2.3" | "installed" => (32, 0),
        _ => (70, 2),
    }
}

/// Runs the program; returns its lines.
fn lines(root: &Root, (items, streams): (u32, u32)) -> Vec<String> {
    let mut command = root.command(&compiled("printf"));
    command.args(["gfx906", &items.to_string(), &streams.to_string()]);
    let output = finish(&mut command);
    let said = text(&output);
    assert!(output.status.success() && said.contains("\nend\n"), "{}: {said}", root.version);
    said.lines().map(str::to_string).take_while(|line| line != "end").collect()
}

#[test]
fn kernels_print() {
    for root in roots() {
        let (items, streams) = sizes(&root.version);
        let lines = lines(&root, (items, streams));
        // Each of two wavefronts of five groups once in each round; a round is over before the next begins.
        let (few, rest) = lines.split_at(30.min(lines.len()));
        for (round, part) in few.chunks(10).enumerate() {
            let mut expected: Vec<String> =
                (0..5).flat_map(|group| [few_line(round, group), few_line(round, group)]).collect();
            let mut part = part.to_vec();
            expected.sort();
            part.sort();
            assert_eq!(part, expected, "{}", root.version);
        }
        // The lines of one work-item are in order.
        let mut seen: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let (last, many) = rest.split_last().expect("more lines");
        for line in many {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, launch, _, item, _, number] = words[..] else { panic!("{}: {line}", root.version) };
            let [launch, item, number] = [launch, item, number].map(|word| word.parse().expect("a number"));
            let next = seen.entry((launch, item)).or_default();
            assert_eq!(number, *next, "{}: {line}", root.version);
            *next += 1;
        }
        let expected =
            (0..4).flat_map(|launch| (0..3 * items).map(move |item| ((launch, item), 2 + item % 2)));
        assert_eq!(seen, expected.collect(), "{}", root.version);
        let words: String = (0..1000u32).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        assert_eq!(*last, format!("text {words}|"), "{}", root.version);
    }
}

fn few_line(round: usize, group: u8) -> String {
    let kind = if group % 2 == 1 { "odd" } else { "even" };
    let letter = char::from(b'a' + group);
    format!(
        "round {round} group {group} of 5: {kind} {group}.250 {letter} 123456789abcdef 1 2 3 4 5 {group}%"
    )
}
